output "repository" {
  description = "Repository of images: IMAGE=<this>/recordmill:TAG of make image."
  value       = "${var.region}-docker.pkg.dev/${var.project}/${google_artifact_registry_repository.images.repository_id}"
}

output "work_bucket" {
  description = "BUCKET of make template and make launch."
  value       = google_storage_bucket.work.name
}

output "builder" {
  description = "Service account that builds the image."
  value       = google_service_account.builder.name
}

output "worker" {
  description = "Service account of jobs."
  value       = google_service_account.worker.email
}

output "dataset" {
  description = "Output of the scheduled job. load_dataset reads it, and follows latest.json."
  value       = "gs://${google_storage_bucket.datasets.name}/${var.output_folder}"
}

output "template" {
  description = "The template of the schedule; TEMPLATE of make launch."
  value       = one([for object in google_storage_bucket_object.template : "gs://${object.bucket}/${object.name}"])
}
