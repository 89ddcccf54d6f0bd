"""Guests for the VMs of a Cluster: writes what `capw guests` reads of a VM, and shows what its guest says by the agent.

The directory is that of one data center, as the simulated hypervisor of capw keeps it (src/hypervisor/drivers/simulated/record.rs).
"""

import asyncio
import datetime
import json
import os
import shutil
import time

MARK = 'capw-machine='
# Guests of this image do not come to the end of their join.
HANGING = 'windows-that-hangs'
REPORT = 'C:\\ProgramData\\capw\\report.log'
# Seconds between two looks.
LOOK = 0.02


class Vms(list):
    """The VMs of a cluster. The guest of one that is removed ends before the removal does."""

    def __init__(self, guests):
        super().__init__()
        self.guests = guests

    def remove(self, vm):
        super().remove(vm)
        self.guests.gone(vm)


class Guests:
    def __init__(self, cluster, directory):
        self.cluster, self.directory, self.known = cluster, directory, {}

    async def run(self):
        while True:
            began = time.monotonic()
            for vm in list(self.cluster.vms):
                uuid = identity(vm)
                if uuid:
                    self.follow(vm, uuid)
            # Many VMs take longer to look at; the looks must not take the processor from the cluster.
            await asyncio.sleep(max(LOOK, 10 * (time.monotonic() - began)))

    def follow(self, vm, uuid):
        """Writes what has changed of a VM, and tells what its guest has said."""
        if vm not in self.known:
            self.known[vm] = self.make(vm, uuid)
        it = self.known[vm]
        self.insert(vm, it)
        is_on = vm.status == 'running'
        if is_on != it['on']:
            it.update(on=is_on, since=now(), starts=it['starts'] + is_on)
            write(it['home'], 'vm.json', record(vm, uuid, it))
        if is_on:
            self.listen(vm, it)

    def make(self, vm, uuid):
        """A directory that is whole when it is there."""
        made = now()
        it = {'home': os.path.join(self.directory, uuid), 'made': made, 'since': made, 'drive': None, 'on': False, 'starts': 0, 'offset': 0}
        new = it['home'] + '.new'
        os.makedirs(os.path.join(new, 'disk'))
        write(new, 'vm.json', record(vm, uuid, it))
        os.rename(new, it['home'])
        return it

    def insert(self, vm, it):
        """The configuration drive that is in a CD drive of the VM."""
        drive = None
        for value in vm.config.values():
            storage, _, name = str(value).split(',')[0].partition(':iso/')
            drive = drive or self.cluster.drives.get((storage, name))
        if drive != it['drive']:
            it['drive'] = drive
            if drive:
                write(it['home'], 'config-drive.iso', drive)
            else:
                os.remove(os.path.join(it['home'], 'config-drive.iso'))

    def listen(self, vm, it):
        """The newest whole report on the console is what the agent shows."""
        try:
            with open(os.path.join(it['home'], 'console.log'), 'rb') as console:
                console.seek(it['offset'])
                text = console.read()
        except FileNotFoundError:
            text = b''
        whole = text[:text.rfind(b'\n') + 1]
        it['offset'] += len(whole)
        reports = [line for line in whole.decode(errors='replace').splitlines() if line.startswith('capw1 ')]
        if reports:
            vm.agent = {'files': {REPORT: reports[-1] + '\n'}}

    def gone(self, vm):
        it = self.known.pop(vm, None)
        if it:
            # A rename first: the guest sees its end as one step.
            os.rename(it['home'], it['home'] + '.gone')
            shutil.rmtree(it['home'] + '.gone')


def identity(vm):
    """The UUID that the mark of a VM of capw names, once its clone has ended."""
    if vm.template or vm.config.get('lock') or getattr(vm, 'lock', None):
        return None
    lines = str(vm.config.get('description', '')).splitlines()
    marks = [part for line in lines for part in line.strip().split(';') if part.startswith(MARK)]
    return marks[0][len(MARK):] if marks else None


def record(vm, uuid, it):
    lines = str(vm.config.get('description', '')).splitlines()
    machine = next((line.strip()[len('capw-name='):] for line in lines if line.strip().startswith('capw-name=')), '')
    image = next((tag for tag in str(vm.config.get('tags', '')).split(';') if tag.startswith('windows-')), 'windows-server-2022')
    values = {'mark': '', 'vm': uuid, 'name': machine, 'cluster': '', 'hostName': '', 'image': image,
              'cpus': int(vm.config.get('cores', 1)) * int(vm.config.get('sockets', 1)), 'memoryMib': int(vm.config.get('memory', 512)),
              'existsFrom': it['made'], 'power': 'On' if it['on'] else 'Off', 'since': it['since'], 'powerOns': it['starts'],
              'bootMilliseconds': 0, 'joinMilliseconds': 3_600_000 if image == HANGING else 0, 'stopMilliseconds': 0, 'faults': []}
    return json.dumps(values).encode()


def now():
    return datetime.datetime.now(datetime.timezone.utc).isoformat().replace('+00:00', 'Z')


def write(home, name, content):
    """Replaces a file at once."""
    path = os.path.join(home, name)
    with open(path + '.part', 'wb') as file:
        file.write(content)
    os.rename(path + '.part', path)
