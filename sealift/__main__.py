from sealift.cli.main import run_command

run_command()
