//! Logs, metrics, and `/livez /readyz /metrics`.
