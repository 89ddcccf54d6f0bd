"""What cloudbase-init's own code makes of what a machine is given. It looks for the machine's metadata service in the order of
the configuration, and runs its plug-ins, with its markers, at each start until nothing wants another one.

usage: judge.py CONFIGURATION (--cdrom IMAGE | --disk IMAGE | --guestinfo JSON) [--exit CODE]...
       judge.py CONFIGURATION --options
The codes are those with which the user data's script ends, at each time that it is run. Prints one JSON object."""
import argparse
import base64
import configparser
import json
import os
import shutil
import sys
import tempfile

import windows

from cloudbaseinit import conf
from cloudbaseinit.utils import classloader

# More starts than any order of codes asks for.
STARTS = 10
# What can run without Windows. The others set up its disks and adapters, and see nothing of what a machine is given.
RUN = ("cloudbaseinit.plugins.common.sethostname.SetHostNamePlugin", "cloudbaseinit.plugins.common.userdata.UserDataPlugin")


def options(path):
    """The options in a configuration that cloudbase-init does not have, and the classes in it that do not exist."""
    text = configparser.ConfigParser(interpolation=None)
    text.read(path)
    known = {"DEFAULT": set()}
    for group, entry in [("DEFAULT", conf.CONF._opts)] + [(name, group._opts) for name, group in conf.CONF._groups.items()]:
        known.setdefault(group, set()).update(name.lower() for name in entry)
        for option in entry.values():
            for old in option["opt"].deprecated_opts:
                known.setdefault(old.group or group, set()).add((old.name or option["opt"].name).lower())
    unknown = [f"[{section}] {name}" for section in ["DEFAULT"] + text.sections() for name in dict(text[section])
               if name.replace("-", "_") not in known.get(section, set()) and (section == "DEFAULT" or name not in text.defaults())]
    missing = []
    for name in list(conf.CONF.plugins) + list(conf.CONF.metadata_services):
        try:
            classloader.ClassLoader().load_class(name)
        except Exception as error:
            missing.append(f"{name}: {error!r}")
    values = {name: conf.CONF[name] for name in ("plugins", "metadata_services", "allow_reboot", "debug", "userdata_save_path",
                                                 "logging_serial_port_settings", "process_userdata", "first_logon_behaviour")}
    return {"unknown": unknown, "missing": missing, "values": values}


def judge(arguments):
    bsdtar = shutil.which("bsdtar")
    machine = windows.Machine(arguments.cdrom or arguments.disk, bool(arguments.disk), arguments.guestinfo, arguments.exit)
    windows.become(machine)
    from cloudbaseinit import init
    from cloudbaseinit.metadata import factory
    from cloudbaseinit.plugins.common import base
    conf.CONF.set_override("plugins", [name for name in conf.CONF.plugins if name in RUN])
    conf.CONF.set_override("bsdtar_path", bsdtar)
    tools = os.path.join(tempfile.gettempdir(), "rpctool.exe")
    if arguments.guestinfo:
        open(tools, "w").close()
    conf.CONF.set_override("vmware_rpctool_path", tools, "vmwareguestinfo")

    service = factory.get_metadata_service()
    told = {"service": service.get_name(), "instance_id": service.get_instance_id(), "host_name": service.get_host_name(),
            "user_data": base64.b64encode(service.get_decoded_user_data()).decode(),
            "network": repr(service.get_network_details_v2() or service.get_network_details()), "keys": service.get_public_keys(),
            "password": service.get_admin_password()}
    service.cleanup()
    starts = []
    for _ in range(STARTS):
        service = factory.get_metadata_service()
        before = len(machine.scripts)
        success, reboot = init.InitManager()._handle_plugins_stage(machine, service, service.get_instance_id(), base.PLUGIN_STAGE_MAIN)
        service.cleanup()
        starts.append({"name": machine.name, "success": success, "scripts": len(machine.scripts) - before, "reboot": bool(reboot)})
        machine.restart()
        if len(starts) > 1 and not reboot and not machine.exits:
            break
    told["starts"] = starts
    told["scripts"] = [{"sysnative": script["sysnative"], "extension": os.path.splitext(script["path"])[1],
                        "bytes": base64.b64encode(script["bytes"]).decode()} for script in machine.scripts]
    if machine.mounted:
        shutil.rmtree(machine.mounted)
    told["left"] = [name for _, _, names in os.walk(tempfile.gettempdir()) for name in names if name != "rpctool.exe"]
    return told


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("configuration")
    parser.add_argument("--cdrom")
    parser.add_argument("--disk")
    parser.add_argument("--guestinfo")
    parser.add_argument("--options", action="store_true")
    parser.add_argument("--exit", type=int, action="append", default=[])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        tempfile.tempdir = place
        conf.CONF(["--config-file", arguments.configuration], project="cloudbase-init")
        json.dump(options(arguments.configuration) if arguments.options else judge(arguments), sys.stdout)


main()
