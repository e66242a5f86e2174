"""What Prometheus and Grafana are given: rules and dashboards, written into manifests/monitoring by `make manifests`."""
