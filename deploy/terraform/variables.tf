variable "project" {
  description = "Project of all resources and jobs."
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
  description = "Name of the resources and of the job. Dataflow runs one active job of a name in a region."
  type        = string
  default     = "recordmill"

  validation {
    # Service accounts have the shortest names: 30 characters, and "-scheduler" has ten.
    condition     = can(regex("^[a-z]([-a-z0-9]{0,18}[a-z0-9])?$", var.name))
    error_message = "At most 20 of a-z, 0-9 and -, beginning with a letter and not ending with -."
  }
}

variable "image" {
  description = "Image of deploy/Dockerfile, with a tag or digest; null: no template and no schedule."
  type        = string
  default     = null

  validation {
    condition     = var.image == null || can(regex("^[a-z0-9][a-z0-9./_-]*(:[A-Za-z0-9._-]+|@sha256:[0-9a-f]{64})$", var.image))
    error_message = "An image with its tag or digest: REGION-docker.pkg.dev/PROJECT/REPOSITORY/recordmill:TAG."
  }
}

variable "input" {
  description = "Input of the scheduled job: gs://BUCKET/PATH. Workers get the right to read the bucket."
  type        = string

  validation {
    condition     = can(regex("^gs://[^/]+(/.*)?$", var.input))
    error_message = "A path gs://BUCKET/PATH."
  }
}

variable "read_buckets" {
  description = "Names of further buckets that workers may read, such as those of annotations, image roots and label files."
  type        = set(string)
  default     = []
}

variable "output_folder" {
  description = "Folder of the dataset and all its versions, in the bucket for datasets. Its name is the name of the dataset."
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
    error_message = "Set the variables versions and keep_versions instead of dataset_version, keep_versions and overwrite."
  }
  validation {
    condition     = !var.versions || lookup(var.parameters, "writer", "shards") != "beam"
    error_message = "With versions, writer is shards: only these shards are the same each time, so that unchanged records can be reused."
  }
}

variable "versions" {
  description = "Publish a new version if something has changed; it reuses unchanged records of the latest version. false: replace the dataset in each run."
  type        = bool
  default     = true
}

variable "keep_versions" {
  description = "Number of versions to keep. Older versions are removed, but never the one that latest.json names. null: keep all."
  type        = number
  default     = 3

  validation {
    condition     = var.keep_versions == null ? true : var.keep_versions >= 1 && floor(var.keep_versions) == var.keep_versions
    error_message = "An integer from 1, or null."
  }
}

variable "schedule" {
  description = "Start times of jobs, in cron's notation."
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
  description = "Maximum number of workers of a job; limits its cost and the quota that it needs."
  type        = number
  default     = 20

  validation {
    condition     = var.max_workers >= 1 && var.max_workers <= 1000
    error_message = "From 1 to 1000."
  }
}

variable "machine_type" {
  description = "Machine type of a worker; null: the default of recordmill."
  type        = string
  default     = null
}

variable "subnetwork" {
  description = "regions/REGION/subnetworks/NAME, or its full address. Workers then have no public addresses, and the subnetwork needs Private Google Access. null: the default network of the project, with public addresses."
  type        = string
  default     = null

  validation {
    condition     = var.subnetwork == null || can(regex("regions/[^/]+/subnetworks/[^/]+$", var.subnetwork))
    error_message = "regions/REGION/subnetworks/NAME, or https://www.googleapis.com/compute/v1/projects/HOST/regions/REGION/subnetworks/NAME for a shared network."
  }
}

variable "kms_key" {
  description = "projects/P/locations/L/keyRings/R/cryptoKeys/K: the key that encrypts buckets, images and the state of jobs. Its location is the region. null: Google's keys."
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
  description = "Cloud Monitoring channels for alerts: projects/P/notificationChannels/ID."
  type        = list(string)
  default     = []
}

variable "days_without_success" {
  description = "Days without a successful job (published or unchanged) before an alert; more than the longest gap of the schedule."
  type        = number
  default     = 2

  validation {
    condition     = var.days_without_success >= 1 && var.days_without_success <= 30 && floor(var.days_without_success) == var.days_without_success
    error_message = "An integer from 1 to 30."
  }
}
