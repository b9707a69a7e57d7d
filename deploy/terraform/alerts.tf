resource "google_monitoring_alert_policy" "failed" {
  display_name          = "${var.name}: a job failed"
  combiner              = "OR"
  severity              = "ERROR"
  notification_channels = var.notification_channels

  conditions {
    display_name = "Dataflow calls a job failed"
    condition_threshold {
      filter          = "metric.type = \"dataflow.googleapis.com/job/is_failed\" AND resource.type = \"dataflow_job\" AND resource.labels.job_name = \"${var.name}\""
      comparison      = "COMPARISON_GT"
      threshold_value = 0
      duration        = "0s"
      aggregations {
        alignment_period   = "60s"
        per_series_aligner = "ALIGN_MAX"
      }
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "A job of recordmill failed; nothing new is published, and the dataset that was there still is. See \"A job has failed\" in deploy/README.md."
  }
}

# Cloud Scheduler's own log: a launch that was refused never becomes a job that could fail.
resource "google_monitoring_alert_policy" "not_launched" {
  display_name          = "${var.name}: a job was not started"
  combiner              = "OR"
  severity              = "WARNING"
  notification_channels = var.notification_channels

  conditions {
    display_name = "Cloud Scheduler's request was refused"
    condition_matched_log {
      filter = "resource.type=\"cloud_scheduler_job\" AND resource.labels.job_id=\"${var.name}\" AND resource.labels.location=\"${var.region}\" AND severity>=ERROR"
    }
  }

  alert_strategy {
    notification_rate_limit {
      period = "3600s"
    }
    auto_close = "604800s"
  }

  documentation {
    mime_type = "text/markdown"
    content   = "Dataflow refused to start the job. A status of 409 means that the last one is still at work: the schedule is too dense, or the job too slow. See \"Monitoring\" in deploy/README.md."
  }
}

# A worker says so once the manifest is written, which is the end of every successful job.
resource "google_logging_metric" "published" {
  name        = "${replace(var.name, "-", "_")}_published"
  description = "Datasets that jobs of recordmill have published."
  filter      = "resource.type=\"dataflow_step\" AND resource.labels.job_name=\"${var.name}\" AND logName=\"projects/${var.project}/logs/dataflow.googleapis.com%2Fworker\" AND jsonPayload.message:\"recordmill published\""

  metric_descriptor {
    metric_kind = "DELTA"
    value_type  = "INT64"
    unit        = "1"
  }
}

# PromQL, since a condition of absence looks back 23.5 hours at most, and only at a metric that has had a value.
resource "google_monitoring_alert_policy" "no_success" {
  display_name          = "${var.name}: nothing published in ${var.days_without_success} days"
  combiner              = "OR"
  severity              = "CRITICAL"
  notification_channels = var.notification_channels

  conditions {
    display_name = "No dataset published"
    condition_prometheus_query_language {
      query                     = "(sum(increase(logging_googleapis_com:user_${google_logging_metric.published.name}{monitored_resource=\"dataflow_step\"}[${var.days_without_success}d])) or vector(0)) <= 0"
      duration                  = "0s"
      evaluation_interval       = "3600s"
      disable_metric_validation = true
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "No job of recordmill has published for ${var.days_without_success} days; it is open from the beginning until the first does. See \"Monitoring\" in deploy/README.md."
  }
}
