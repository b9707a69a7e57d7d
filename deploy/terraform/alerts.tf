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

  depends_on = [google_project_service.used]
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

  depends_on = [google_project_service.used]
}

# The counters of a job that has published, or has found nothing changed. PromQL, since a condition of absence looks back 23.5 hours at most, and only
# at a metric that has had a value; and no metric of log lines, of which alerts see the last 25 hours.
resource "google_monitoring_alert_policy" "no_success" {
  display_name          = "${var.name}: no job has ended well in ${var.days_without_success} days"
  combiner              = "OR"
  severity              = "CRITICAL"
  notification_channels = var.notification_channels

  conditions {
    display_name = "No dataset published, and none found unchanged"
    condition_prometheus_query_language {
      query                     = "(sum(max_over_time(dataflow_googleapis_com:job_user_counter{monitored_resource=\"dataflow_job\",job_name=\"${var.name}\",metric_name=~\"published|unchanged\"}[${var.days_without_success}d])) or vector(0)) <= 0"
      duration                  = "0s"
      evaluation_interval       = "3600s"
      disable_metric_validation = true
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "No job of recordmill has published, or found that nothing has changed, for ${var.days_without_success} days; it is open from the beginning until the first does. See \"Monitoring\" in deploy/README.md."
  }

  depends_on = [google_project_service.used]
}
