"""The dashboard that the collector serves at `/`: pages, their data as files, and nothing from elsewhere.

A request goes access.py (who may look) -> view.py (what the address says) -> pages/ (questions to a Page of panels) -> templates/ (HTML). Everything
that came over the network, names of operators and hosts above all, is text to be escaped: Jinja2 and charts/svg.py escape whatever is no Markup."""

from sealift.fleet.dashboard.app import application

__all__ = ["application"]
