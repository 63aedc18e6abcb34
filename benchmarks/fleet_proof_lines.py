"""Which test proves what: each claim about the fleet with the tests that would fail if it were not so. Part of docs/fleet-proof.md."""

from __future__ import annotations

LINES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Every question's answer is what the simulator knows it sent; quantiles are within the stated bound",
     ("test_truth.py::test_top_is_what_was_sent", "test_truth.py::test_what_happened_is_within_the_stated_bounds",
      "test_truth.py::test_trend_heatmap_and_quantiles_over_time", "test_truth.py::test_the_small_tables",
      "test_truth.py::test_diff_finds_the_planted_change_and_nothing_else", "test_condensed.py::test_the_same_answers_as_from_the_rows")),
    ("Both stores answer alike, in every question, page and file",
     ("test_clickhouse.py::test_the_same_answers", "test_clickhouse.py::test_the_same_dashboard", "test_clickhouse.py::test_sql_and_figures")),
    ("OpenTelemetry's SDK, rotel and Prometheus are real peers; clickhouse-connect talks to the shim",
     ("test_peers.py::test_the_sdk_s_exporter_with_an_instrument_of_the_user_s", "test_peers.py::test_observe_s_own_otlp_sink",
      "test_peers.py::test_rotel_between_agent_and_collector", "test_peers.py::test_prometheus_scrapes_the_collector",
      "test_clickhouse.py::test_a_collector_in_front_of_clickhouse_takes_what_agents_send")),
    ("kill -9 of collector and agents under load, and of a store at its next system call",
     ("test_faults.py::test_killed_under_load", "test_embedded.py::test_killed_between_any_two_instructions",
      "test_embedded.py::test_after_a_crash_nothing_half_done_is_left")),
    ("A full disk",
     ("test_embedded.py::test_full_disk", "test_embedded.py::test_the_reserve_is_not_given_to_batches", "test_collector.py::test_behind_and_full",
      "test_agent.py::test_the_spool_is_bounded_and_drops_the_oldest")),
    ("Clocks that leap: of agents, and of the collector",
     ("test_decode.py::test_clocks", "test_steady.py::test_a_leap_is_believed_after_an_hour",
      "test_steady.py::test_a_collector_s_clock_that_leaps_loses_nothing_and_counts_nothing_twice")),
    ("Two collectors on one store: refused by the embedded one, counted once by ClickHouse",
     ("test_embedded.py::test_two_collectors_cannot_own_one_store",
      "test_clickhouse.py::test_repetitions_are_not_counted_through_any_collector")),
    ("A slow or hanging collector, and one that is away: the observed program feels nothing, the spool delivers later",
     ("test_agent.py::test_a_collector_that_hangs_costs_the_program_nothing",
      "test_agent.py::test_while_the_collector_is_away_the_spool_waits_and_a_later_process_delivers",
      "test_collector.py::test_behind_and_full", "test_collector.py::test_a_client_that_sends_too_much_is_told_when_to_come_back")),
    ("Truncated and otherwise damaged segments, and a control file of another kind",
     ("test_embedded.py::test_a_damaged_segment_is_set_aside", "test_embedded.py::test_a_control_file_of_another_kind",
      "test_native_points.py::test_runs_from_a_damaged_file_are_refused")),
    ("Hostile OTLP: fuzzed protobuf and JSON, gzip bombs, sizes",
     ("test_decode.py::test_random_bytes", "test_decode.py::test_damaged_requests", "test_decode.py::test_hostile_json",
      "test_decode.py::test_deep_and_broken_json", "test_decode.py::test_gzip_bombs_are_not_unpacked",
      "test_native_points.py::test_damaged_messages_too", "test_native_points.py::test_never_reads_where_nothing_is",
      "test_collector.py::test_requests_that_are_refused")),
    ("Hostile names, other sites' pages, rebound names, formulas in files, secrets in logs",
     ("test_dashboard.py::test_names_from_the_network_stay_text", "test_dashboard_browser.py::test_hostile_names_run_nothing",
      "test_guard.py::test_a_rebound_name_is_not_answered_to", "test_guard.py::test_another_site_s_page_gives_no_orders",
      "test_guard.py::test_texts_in_csv_files_are_no_formulas", "test_guard.py::test_secrets_are_in_no_address_and_no_log")),
    ("A quiet week raises no alarm; a planted regression is found with its operator, model and time",
     ("test_rules.py::test_a_quiet_week_raises_no_alarm_and_the_regression_after_it_does",
      "test_rules.py::test_the_planted_regression_in_a_young_store",
      "test_cli.py::test_check_fails_a_pipeline_and_names_the_culprit")),
    ("The demo's three processes are in the answers, and it listens on loopback alone",
     ("test_demo.py::test_the_demo_shows_three_processes_and_opens_no_port_but_loopback",)),
    ("Orders hold the budget and keep totals unbiased; a trace of a running process is what Perfetto's format asks for",
     ("test_control.py::test_a_lower_budget_is_followed",
      "test_control.py::test_processes_are_chosen_at_random_and_stand_for_the_others", "test_control.py::test_a_trace_of_a_running_process")),
)  # fmt: skip


def section() -> list[str]:
    lines = [
        "## Which test proves what",
        "",
        "In tests/fleet; `make test` runs them, but for those of peers and of ClickHouse, which `make fleet-peers fleet-clickhouse` run.",
        "",
    ]
    lines += ["| Claim | Tests |", "|---|---|"]
    for claim, tests in LINES:
        lines.append(f"| {claim} | {', '.join(f'`{test}`' for test in tests)} |")
    return [*lines, ""]
