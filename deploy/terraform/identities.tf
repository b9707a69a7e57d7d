# Launcher machine and workers: Dataflow runs both as this account.
resource "google_service_account" "worker" {
  account_id   = "${var.name}-worker"
  display_name = "Recordmill: launcher machine and workers"

  depends_on = [google_project_service.used]
}

resource "google_service_account" "scheduler" {
  account_id   = "${var.name}-scheduler"
  display_name = "Recordmill: starts jobs on schedule"

  depends_on = [google_project_service.used]
}

resource "google_service_account" "builder" {
  account_id   = "${var.name}-builder"
  display_name = "Recordmill: builds the image"

  depends_on = [google_project_service.used]
}

# --- the worker: the role of a Dataflow worker; pulls its image, reads the input, writes the output

resource "google_project_iam_member" "worker" {
  project = var.project
  role    = "roles/dataflow.worker"
  member  = google_service_account.worker.member
}

resource "google_artifact_registry_repository_iam_member" "worker" {
  location   = google_artifact_registry_repository.images.location
  repository = google_artifact_registry_repository.images.name
  role       = "roles/artifactregistry.reader"
  member     = google_service_account.worker.member
}

resource "google_storage_bucket_iam_member" "worker_reads" {
  for_each = setunion(var.read_buckets, [local.input_bucket])

  bucket = each.key
  role   = "roles/storage.objectViewer"
  member = google_service_account.worker.member
}

resource "google_storage_bucket_iam_member" "worker_writes" {
  for_each = {
    work     = google_storage_bucket.work.name
    datasets = google_storage_bucket.datasets.name
  }

  bucket = each.value
  role   = "roles/storage.objectUser"
  member = google_service_account.worker.member
}

# --- starters of jobs, the scheduler and people: create a job, read its template, act as the worker

locals {
  starters = merge(
    { scheduler = google_service_account.scheduler.member },
    { for member in var.launchers : member => member },
  )
}

resource "google_project_iam_member" "starter" {
  for_each = local.starters

  project = var.project
  role    = "roles/dataflow.developer"
  member  = each.value
}

resource "google_storage_bucket_iam_member" "starter" {
  for_each = local.starters

  bucket = google_storage_bucket.work.name
  role   = "roles/storage.objectViewer"
  member = each.value
}

# Every launch needs it: a job runs as the worker, and its starter must have the right to act as the worker.
resource "google_service_account_iam_member" "starter_acts_as_worker" {
  for_each = local.starters

  service_account_id = google_service_account.worker.name
  role               = "roles/iam.serviceAccountUser"
  member             = each.value
}

# --- the builder: reads the uploaded source, pushes, logs; people who build: start a build as the builder

resource "google_project_iam_member" "builder_logs" {
  project = var.project
  role    = "roles/logging.logWriter"
  member  = google_service_account.builder.member
}

resource "google_artifact_registry_repository_iam_member" "builder" {
  location   = google_artifact_registry_repository.images.location
  repository = google_artifact_registry_repository.images.name
  role       = "roles/artifactregistry.writer"
  member     = google_service_account.builder.member
}

resource "google_storage_bucket_iam_member" "builder" {
  bucket = google_storage_bucket.work.name
  role   = "roles/storage.objectViewer"
  member = google_service_account.builder.member
}

resource "google_project_iam_member" "publisher" {
  for_each = var.publishers

  project    = var.project
  role       = "roles/cloudbuild.builds.editor"
  member     = each.key
  depends_on = [google_project_service.used]
}

# gcloud uploads the source with the quota of the project, after it has read the metadata of the bucket.
resource "google_project_iam_member" "publisher_uses_quota" {
  for_each = var.publishers

  project    = var.project
  role       = "roles/serviceusage.serviceUsageConsumer"
  member     = each.key
  depends_on = [google_project_service.used]
}

resource "google_storage_bucket_iam_member" "publisher_sees_bucket" {
  for_each = var.publishers

  bucket = google_storage_bucket.work.name
  role   = "roles/storage.legacyBucketReader"
  member = each.key
}

# Uploads the source, and the template of make template.
resource "google_storage_bucket_iam_member" "publisher" {
  for_each = var.publishers

  bucket = google_storage_bucket.work.name
  role   = "roles/storage.objectUser"
  member = each.key
}

resource "google_service_account_iam_member" "publisher_acts_as_builder" {
  for_each = var.publishers

  service_account_id = google_service_account.builder.name
  role               = "roles/iam.serviceAccountUser"
  member             = each.key
}
