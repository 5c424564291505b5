"""What every service is made of: bus, lifecycle, config, errors, telemetry and the budget ledger."""
