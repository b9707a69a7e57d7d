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
    content   = "A job of recordmill failed. It published nothing, and the previous dataset is unchanged. See \"A job has failed\" in deploy/README.md."
  }

  depends_on = [google_project_service.used]
}

# From the log of Cloud Scheduler: a refused launch creates no job, so no job can fail.
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
    content   = "Dataflow refused to start the job. A status of 409 means that the previous job is still running: the schedule is too dense, or the job too slow. See \"Monitoring\" in deploy/README.md."
  }

  depends_on = [google_project_service.used]
}

# The counters of successful jobs: published, or nothing changed. The query is PromQL because a condition of absence looks
# back 23.5 hours at most, and needs a metric with an earlier value; alerts on metrics of log lines see the last 25 hours.
resource "google_monitoring_alert_policy" "no_success" {
  display_name          = "${var.name}: no successful job in ${var.days_without_success} days"
  combiner              = "OR"
  severity              = "CRITICAL"
  notification_channels = var.notification_channels

  conditions {
    display_name = "No dataset was published or found unchanged"
    condition_prometheus_query_language {
      query                     = "(sum(max_over_time(dataflow_googleapis_com:job_user_counter{monitored_resource=\"dataflow_job\",job_name=\"${var.name}\",metric_name=~\"published|unchanged\"}[${var.days_without_success}d])) or vector(0)) <= 0"
      duration                  = "0s"
      evaluation_interval       = "3600s"
      disable_metric_validation = true
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "No job of recordmill has published a dataset, or found it unchanged, for ${var.days_without_success} days. A new schedule has this alert until its first successful job. See \"Monitoring\" in deploy/README.md."
  }

  depends_on = [google_project_service.used]
}
