# A Windows image for libvirt, made by Packer on a Linux host with KVM. docs/hypervisors/libvirt-image.md says what must lie beside it.
packer {
  required_plugins {
    qemu = {
      source  = "github.com/hashicorp/qemu"
      version = ">= 1.1.0"
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

variable "edition" {
  type        = string
  default     = "Windows Server 2022 SERVERSTANDARDCORE"
  description = "Which image of the medium: one of those that `wiminfo install.wim` lists."
}

variable "product_key" {
  type        = string
  default     = ""
  sensitive   = true
  description = "Empty for an evaluation edition, which shuts down every hour once it has expired."
}

variable "drivers" {
  type        = string
  default     = "2k22"
  description = "The folder of virtio-win for this release: 2k19, 2k22 or 2k25."
}

# The Administrator's, for the time that the image is made. It is replaced by a random one at the end.
variable "password" {
  type      = string
  sensitive = true
  validation {
    condition     = can(regex("^[A-Za-z0-9]{14,}$", var.password))
    error_message = "Take 14 or more letters and digits, of each some: the answer file and the rules of Windows must both take it."
  }
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

  # A second CD. Setup finds the answer file at its top, and the drivers by their paths.
  cd_label = "install"
  cd_files = ["files/*"]
  cd_content = {
    "Autounattend.xml" = templatefile("${path.root}/Autounattend.xml.pkrtpl", {
      edition     = var.edition
      product_key = var.product_key
      drivers     = var.drivers
      password    = var.password
    })
  }

  headless = true
  # The medium asks for a key before it starts.
  boot_wait    = "2s"
  boot_command = ["<spacebar><wait1s><spacebar><wait1s><spacebar><wait1s><spacebar>"]

  communicator   = "winrm"
  winrm_username = "Administrator"
  winrm_password = var.password
  winrm_use_ntlm = true
  winrm_timeout  = "2h"

  output_directory = "output"
  vm_name          = "windows.qcow2"
  shutdown_timeout = "30m"
  shutdown_command = "cmd.exe /c net user Administrator /random > nul & C:\\Windows\\System32\\Sysprep\\sysprep.exe /generalize /oobe /mode:vm /quiet /shutdown /unattend:\"C:\\Program Files\\Cloudbase Solutions\\Cloudbase-Init\\conf\\Unattend.xml\""
}

build {
  sources = ["source.qemu.windows"]

  # Drivers beyond those that Setup has taken, the guest agent, cloudbase-init, and the feature that containers need.
  provisioner "windows-shell" {
    inline = [
      "for %%d in (D E F) do if exist %%d:\\CloudbaseInitSetup_x64.msi set install=%%d:",
      "if not defined install exit /b 2",
      "msiexec.exe /i %install%\\virtio-win-gt-x64.msi /qn /norestart",
      "msiexec.exe /i %install%\\guest-agent\\qemu-ga-x86_64.msi /qn /norestart",
      "msiexec.exe /i %install%\\CloudbaseInitSetup_x64.msi /qn /norestart",
      "dism.exe /online /quiet /norestart /enable-feature /featurename:Containers /all",
    ]
    # 3010 asks for a restart.
    valid_exit_codes = [0, 3010]
  }

  provisioner "windows-restart" {}

  # The configurations that CAPW's data is written for.
  provisioner "file" {
    source      = "${path.root}/../cloudbase-init.conf"
    destination = "C:/Program Files/Cloudbase Solutions/Cloudbase-Init/conf/cloudbase-init.conf"
  }
  provisioner "file" {
    source      = "${path.root}/../cloudbase-init-unattend.conf"
    destination = "C:/Program Files/Cloudbase Solutions/Cloudbase-Init/conf/cloudbase-init-unattend.conf"
  }

  provisioner "windows-shell" {
    inline = [
      "reg.exe add HKLM\\SOFTWARE\\Policies\\Microsoft\\Windows\\WindowsUpdate\\AU /v NoAutoUpdate /t REG_DWORD /d 1 /f",
      "reagentc.exe /disable & ver > nul",
      "del /q C:\\Windows\\Panther\\unattend.xml & ver > nul",
    ]
  }
}
