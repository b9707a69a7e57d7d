resource "google_storage_bucket_object" "template" {
  count = var.image == null ? 0 : 1

  bucket       = google_storage_bucket.work.name
  name         = local.template_object
  content      = jsonencode(local.container_spec)
  content_type = "application/json"
}

resource "google_cloud_scheduler_job" "convert" {
  count = var.image == null ? 0 : 1

  name        = var.name
  description = "Starts a job of recordmill, unless the previous one is still running."
  region      = var.region
  schedule    = var.schedule
  time_zone   = var.time_zone
  paused      = var.paused

  # No retry_config: a launch that is refused because a job is active is not repeated; the next one is on schedule.
  http_target {
    http_method = "POST"
    uri         = "https://dataflow.googleapis.com/v1b3/projects/${var.project}/locations/${var.region}/flexTemplates:launch"
    headers     = { "Content-Type" = "application/json" }
    body        = base64encode(jsonencode(local.launch))

    oauth_token {
      service_account_email = google_service_account.scheduler.email
      scope                 = "https://www.googleapis.com/auth/cloud-platform"
    }
  }

  lifecycle {
    precondition {
      condition     = length(local.unknown_parameters) == 0
      error_message = "parameters: ${join(", ", local.unknown_parameters)} are not in deploy/metadata.json."
    }
  }

  depends_on = [
    google_storage_bucket_object.template,
    google_service_account_iam_member.starter_acts_as_worker,
    google_project_iam_member.starter,
    google_project_iam_member.worker,
  ]
}
