"""What every layer may use: settings, dtypes, errors, records, costs and facts of machines."""
