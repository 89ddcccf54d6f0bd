"""As much of Windows as cloudbase-init's own code needs to run elsewhere: the modules that it imports, the registry in which it
keeps its markers, drives, and programs that it starts. Nothing here decides anything that cloudbase-init decides."""
import ctypes
import json
import os
import platform
import subprocess
import sys
import tempfile
from unittest import mock

SECTOR = 2048

ctypes.windll = mock.MagicMock()
ctypes.WINFUNCTYPE = mock.MagicMock()
for module in ("pywintypes", "win32api", "win32con", "win32file", "win32net", "win32netcon", "win32process", "win32security",
               "win32service", "winerror", "winioctlcon", "winreg", "wmi", "mi", "PyMI"):
    sys.modules[module] = mock.MagicMock()


def label(image):
    """The label that Windows shows: that of the Joliet descriptor, else that of the primary one."""
    found = None
    with open(image, "rb") as stream:
        for sector in range(16, 64):
            stream.seek(sector * SECTOR)
            descriptor = stream.read(SECTOR)
            if descriptor[0] == 255:
                break
            if descriptor[0] == 2 and descriptor[88:91] in (b"%/@", b"%/C", b"%/E"):
                return descriptor[40:72].decode("utf-16-be").rstrip(" \0")
            if descriptor[0] == 1:
                found = descriptor[40:72].decode("ascii").rstrip(" \0")
    return found


class RawDisk:
    """A block device with sectors of 512 bytes that holds an image."""
    fixed = True

    def __init__(self, path):
        self._path = path
        self.size = os.path.getsize(path)

    def __enter__(self):
        self._stream = open(self._path, "rb")
        return self

    def __exit__(self, *_):
        self._stream.close()

    def seek(self, offset):
        return self._stream.seek(offset // 512 * 512)

    def read(self, size, skip=0):
        return self._stream.read((skip + size + 511) // 512 * 512)[skip:skip + size]


class Machine:
    """One Windows machine: what cloudbase-init's os_utils ask of it."""

    def __init__(self, drive=None, raw=False, guest_info=None, exits=()):
        self.name = "WIN-SYSPREPPED"
        self.registry = {}
        self.scripts = []
        self.exits = list(exits)
        self._raw = drive if raw else None
        self._drive = None if raw else drive
        self.mounted = None
        self._values = json.load(open(guest_info)) if guest_info else None
        if self._drive:
            self.mounted = tempfile.mkdtemp(prefix="cdrom")
            subprocess.run(["bsdtar", "-xf", self._drive, "-C", self.mounted], check=True)
            subprocess.run(["chmod", "-R", "u+w", self.mounted], check=True)

    # Drives
    def get_cdrom_drives(self):
        return [self.mounted] if self.mounted else []

    def get_volume_label(self, drive):
        return label(self._drive) if drive == self.mounted else None

    def get_physical_disks(self):
        return [self._raw] if self._raw else []

    def get_volumes(self):
        return self.get_cdrom_drives()

    # Programs
    def execute_process(self, arguments, shell=True, decode_output=False):
        if os.path.basename(arguments[0]) == "rpctool.exe":
            # VMware's tool: the value, or a message and 1.
            verb, key = arguments[1].split(" ", 1)
            assert verb == "info-get", arguments
            value = (self._values or {}).get(key)
            return (b"", b"No value found\n", 1) if value is None else (value.encode() + b"\n", b"", 0)
        done = subprocess.run(arguments, capture_output=True)
        return done.stdout, done.stderr, done.returncode

    def execute_powershell_script(self, path, sysnative=True):
        with open(path, "rb") as stream:
            self.scripts.append({"path": path, "sysnative": sysnative, "bytes": stream.read()})
        return b"", b"", self.exits.pop(0) if self.exits else 0

    # Settings
    def get_config_value(self, name, section=None):
        return self.registry.get((section, name))

    def set_config_value(self, name, value, section=None):
        self.registry[(section, name)] = value

    def set_host_name(self, name):
        self.pending_name = name
        return True

    def check_os_version(self, *_):
        return True

    def is_nano_server(self):
        return False

    def get_default_script_exec_header(self):
        return "#ps1_sysnative"

    def get_maximum_password_length(self):
        return 20

    def restart(self):
        self.name = getattr(self, "pending_name", self.name)


def become(machine):
    """From here on cloudbase-init runs on this machine."""
    from cloudbaseinit.metadata.services.osconfigdrive import factory as drives
    from cloudbaseinit.metadata.services.osconfigdrive import windows
    from cloudbaseinit.osutils import factory
    factory.get_os_utils = lambda: machine
    windows.disk = mock.MagicMock()
    windows.disk.Disk = RawDisk
    # Paths of this system have slashes; Windows takes both.
    exists = windows.WindowsConfigDriveManager._meta_data_file_exists
    windows.WindowsConfigDriveManager._meta_data_file_exists = lambda self, drive, name: exists(self, drive, name.replace("\\", "/"))
    drives.get_config_drive_manager = windows.WindowsConfigDriveManager
    platform.node = lambda: machine.name
    sys.platform = "win32"
