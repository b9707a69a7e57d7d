variable "project" {
  description = "Project in which everything is made and the jobs run."
  type        = string
}

variable "region" {
  description = "Region of the buckets, the images, the jobs and the schedule."
  type        = string

  validation {
    condition     = can(regex("^[a-z]+-[a-z]+[0-9]+$", var.region))
    error_message = "A region, such as us-central1, not a zone."
  }
}

variable "name" {
  description = "Name of what is made here, and of the job: Dataflow runs one active job of a name in a region."
  type        = string
  default     = "recordmill"

  validation {
    # Service accounts have the shortest names: 30 characters, of which "-scheduler" takes ten.
    condition     = can(regex("^[a-z]([-a-z0-9]{0,18}[a-z0-9])?$", var.name))
    error_message = "At most 20 of a-z, 0-9 and -, beginning with a letter and not ending with -."
  }
}

variable "image" {
  description = "Image of deploy/Dockerfile, with a tag or digest; null makes all but the template and its schedule."
  type        = string
  default     = null

  validation {
    condition     = var.image == null || can(regex("^[a-z0-9][a-z0-9./_-]*(:[A-Za-z0-9._-]+|@sha256:[0-9a-f]{64})$", var.image))
    error_message = "An image with its tag or digest: REGION-docker.pkg.dev/PROJECT/REPOSITORY/recordmill:TAG."
  }
}

variable "input" {
  description = "What the scheduled job reads: gs://BUCKET/PATH. Workers get the right to read the bucket."
  type        = string

  validation {
    condition     = can(regex("^gs://[^/]+(/.*)?$", var.input))
    error_message = "A path gs://BUCKET/PATH."
  }
}

variable "read_buckets" {
  description = "Names of further buckets that workers may read: of annotations, image roots and label files."
  type        = set(string)
  default     = []
}

variable "output_folder" {
  description = "Folder of the dataset, with all its versions, in the bucket for datasets that is made here; its name is the dataset's."
  type        = string
  default     = "dataset"

  validation {
    condition     = can(regex("^[^/](.*[^/])?$", var.output_folder))
    error_message = "A folder without / at its beginning or end."
  }
}

variable "parameters" {
  description = "Further parameters of the template, by name; all values are text, as in image_format = \"jpeg\"."
  type        = map(string)
  default     = {}

  validation {
    condition     = length(setintersection(keys(var.parameters), ["dataset_version", "keep_versions", "overwrite"])) == 0
    error_message = "The variables versions and keep_versions decide about dataset_version, keep_versions and overwrite."
  }
  validation {
    condition     = !var.versions || lookup(var.parameters, "writer", "shards") != "beam"
    error_message = "With versions, writer is shards: what has not changed is taken over from shards that are the same each time."
  }
}

variable "versions" {
  description = "Publish a version wherever something has changed, beside those before it, from the last of which the rest is taken over; false: replace the dataset in each run."
  type        = bool
  default     = true
}

variable "keep_versions" {
  description = "Versions that are left, the oldest being removed, never the one that latest.json names; null: all."
  type        = number
  default     = 3

  validation {
    condition     = var.keep_versions == null ? true : var.keep_versions >= 1 && floor(var.keep_versions) == var.keep_versions
    error_message = "A whole number from 1, or null."
  }
}

variable "schedule" {
  description = "When a job is started, in cron's notation."
  type        = string
  default     = "0 3 * * *"
}

variable "time_zone" {
  description = "Time zone of the schedule."
  type        = string
  default     = "Etc/UTC"
}

variable "paused" {
  description = "Keep the schedule, but start nothing."
  type        = bool
  default     = false
}

variable "max_workers" {
  description = "Most workers of a job; bounds its cost and the quota that it needs."
  type        = number
  default     = 20

  validation {
    condition     = var.max_workers >= 1 && var.max_workers <= 1000
    error_message = "From 1 to 1000."
  }
}

variable "machine_type" {
  description = "Machine of a worker; null leaves it to recordmill."
  type        = string
  default     = null
}

variable "subnetwork" {
  description = "regions/REGION/subnetworks/NAME, or its full address: workers then have no public addresses, and the subnetwork needs Private Google Access. null: the project's default network, with public addresses."
  type        = string
  default     = null

  validation {
    condition     = var.subnetwork == null || can(regex("regions/[^/]+/subnetworks/[^/]+$", var.subnetwork))
    error_message = "regions/REGION/subnetworks/NAME, or https://www.googleapis.com/compute/v1/projects/HOST/regions/REGION/subnetworks/NAME for a shared network."
  }
}

variable "kms_key" {
  description = "projects/P/locations/L/keyRings/R/cryptoKeys/K that encrypts buckets, images and the jobs' state; null: Google's keys. Its location is the region."
  type        = string
  default     = null

  validation {
    condition     = var.kms_key == null || can(regex("^projects/[^/]+/locations/[^/]+/keyRings/[^/]+/cryptoKeys/[^/]+$", var.kms_key))
    error_message = "projects/P/locations/L/keyRings/R/cryptoKeys/K, without a version."
  }
}

variable "launchers" {
  description = "Who may start jobs by hand, with make launch: user:…, group:… or serviceAccount:…."
  type        = set(string)
  default     = []
}

variable "publishers" {
  description = "Who may build the image, with make image: user:…, group:… or serviceAccount:…."
  type        = set(string)
  default     = []
}

variable "notification_channels" {
  description = "Cloud Monitoring channels that are told of alerts: projects/P/notificationChannels/ID."
  type        = list(string)
  default     = []
}

variable "days_without_success" {
  description = "Days without a job that has ended well, published or unchanged, after which there is an alert; more than the schedule's longest gap."
  type        = number
  default     = 2

  validation {
    condition     = var.days_without_success >= 1 && var.days_without_success <= 30 && floor(var.days_without_success) == var.days_without_success
    error_message = "From 1 to 30 whole days."
  }
}
