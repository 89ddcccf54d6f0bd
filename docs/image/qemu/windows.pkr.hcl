# A Windows image for libvirt, made by Packer on a Linux host with KVM. docs/hypervisors/libvirt-image.md says what must lie in `files`.
packer {
  required_plugins {
    qemu = {
      source  = "github.com/hashicorp/qemu"
      # 1.1.2 stops a machine without a communicator instead of waiting for it.
      version = ">= 1.1.3"
    }
  }
}

variable "iso" {
  type        = string
  description = "Windows Server's installation medium, e.g. SERVER_2022.iso."
}

variable "iso_checksum" {
  type        = string
  description = "sha256:... of it, as Microsoft publishes it."
}

variable "firmware" {
  type        = object({ code = string, vars = string })
  default     = { code = "/usr/share/OVMF/OVMF_CODE_4M.ms.fd", vars = "/usr/share/OVMF/OVMF_VARS_4M.ms.fd" }
  description = "UEFI with Secure Boot and Microsoft's keys, as Debian and Ubuntu install it."
}

source "qemu" "windows" {
  accelerator       = "kvm"
  machine_type      = "q35"
  cpus              = 4
  memory            = 8192
  efi_firmware_code = var.firmware.code
  efi_firmware_vars = var.firmware.vars
  vtpm              = true

  iso_url         = var.iso
  iso_checksum    = var.iso_checksum
  cdrom_interface = "ide"
  disk_interface  = "virtio"
  disk_size       = "40G"
  disk_discard    = "unmap"
  net_device      = "virtio-net"
  format          = "qcow2"

  # A second CD. Setup finds the answer file at its top, and everything else by its path.
  cd_label = "install"
  cd_files = ["files/*"]

  headless = true
  # The medium asks for a key before it starts.
  boot_wait    = "2s"
  boot_command = ["<spacebar><wait1s><spacebar><wait1s><spacebar><wait1s><spacebar>"]

  # The machine switches itself off once it is sealed. What it does before is in install.log.
  communicator     = "none"
  shutdown_timeout = "2h"
  qemuargs         = [["-serial", "file:install.log"]]

  output_directory = "output"
  vm_name          = "windows.qcow2"
}

build {
  sources = ["source.qemu.windows"]
}
