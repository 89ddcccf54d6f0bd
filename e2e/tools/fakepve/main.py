"""A Proxmox VE cluster for the tests of the driver: fakepve, with the few things that it answers only for the look of it.

Prints its address. Then each line of the input is a Python expression, in which `pve` is the cluster; its value is printed as a line of
JSON, or {"error": ...}. The cluster ends with its input.
"""

import argparse
import asyncio
import base64
import json
import os
import sys
import threading

from fakepve import FakePve
from fakepve.routing import die
from fakepve.shapes import PRIVILEGES

from guests import HANGING, Guests, Vms

AUTHORITY = 'AA:' * 31 + 'AA'
TOKEN = 'capw@pve!capw'
GIB = 1024 ** 3


class Cluster(FakePve):
    def __init__(self):
        super().__init__(host='127.0.0.1', port=0)
        # Seconds before a task of a VM does what it is for.
        self.task_seconds = 0
        self.fill()

    def fill(self):
        """Two nodes, storages of three kinds, and templates."""
        self.authority = AUTHORITY
        self.bridges = ['vmbr0', 'vmbr1']
        self.drives = {}
        self.apitokens = {TOKEN: 'secret'}
        self.pools = {'capw': set()}
        self.add_node('pve1')
        self.add_node('pve2')
        self.storages = {
            'isos': {'type': 'nfs', 'active': 1, 'content': 'iso', 'files': set(), 'shared': 1, 'avail': 50 * GIB},
            'local': {'type': 'dir', 'active': 1, 'content': 'iso,vztmpl', 'files': set(), 'path': '/var/lib/vz'},
            'local-lvm': {'type': 'lvmthin', 'active': 1, 'content': 'images,rootdir', 'files': set(), 'vgname': 'pve', 'thinpool': 'data'}}
        self.add_ceph_storage('ceph')
        self.image(9000, 'windows-server-2022', 'ceph')
        self.image(9001, 'windows-local', 'local-lvm')
        self.image(9002, 'windows-bios', 'ceph', bios='seabios')
        self.image(9010, 'windows-server-2025', 'ceph', tags='windows-server-2025')
        self.image(9011, HANGING, 'ceph', tags=HANGING)

    def image(self, vmid, name, storage, node='pve1', **more):
        disk = '{0}:base-{1}-disk-'.format(storage, vmid)
        config = {'bios': 'ovmf', 'boot': 'order=scsi0', 'scsi0': disk + '0,size=32G', 'agent': '1', 'ostype': 'win11', 'cores': 1,
                  'efidisk0': disk + '1,efitype=4m,pre-enrolled-keys=1,size=528K', 'net0': 'virtio=BC:24:11:00:00:01,bridge=vmbr0,firewall=1',
                  'smbios1': 'uuid=11111111-1111-4111-8111-111111111111', 'template': 1}
        config.update(more)
        return self.add_vm(vmid, name, node=node, config=config, template=True) and None

    def reset(self):
        """As it was at the start, at the same address."""
        runner, port = self.runner, self.port
        Cluster.__init__(self)
        self.runner, self.port = runner, port

    # What fakepve answers without meaning it.

    def _routes_capw(self):
        return [('GET', '/nodes/{node}/certificates/info', self._certificates), ('GET', '/nodes/{node}/network', self._network),
                ('PUT', '/nodes/{node}/qemu/{vmid}/resize', self._resize)]

    async def _certificates(self, _values, _user):
        return [{'filename': 'pve-root-ca.pem', 'fingerprint': self.authority}, {'filename': 'pve-ssl.pem', 'fingerprint': 'BB:' * 31 + 'BB'}]

    async def _network(self, _values, _user):
        return [{'iface': name, 'type': 'bridge', 'active': 1} for name in self.bridges]

    async def _resize(self, values, user):
        vm, disk, gib = self.find(values['node'], values['vmid']), values['disk'], int(values['size'].rstrip('G'))

        async def body():
            volume, has = vm.config[disk].split(',size=')
            if int(has.rstrip('G')) > gib:
                raise die('shrinking disks is not supported')
            vm.config[disk] = '{0},size={1}G'.format(volume, gib)
        return await self.task(vm.node, 'resize', vm.vmid, user, body, vm=vm)

    async def task(self, node, ttype, tid, user, body, vm=None, **more):
        # The library keeps only the last upload, and another one may come before this task runs.
        uploaded = self.uploaded

        async def slowly():
            if self.task_seconds and vm:
                await asyncio.sleep(self.task_seconds)
            self.uploaded = uploaded
            return await body()
        # A client that goes does not end what it began.
        return await asyncio.shield(super().task(node, ttype, tid, user, slowly, vm=vm, **more))

    def store_file(self, storage, name, size, content='iso'):
        super().store_file(storage, name, size, content)
        self.drives[storage, name] = (self.uploaded or {}).get('data', b'')

    # What the tests do and see.

    def machines(self):
        """The VMs that are no templates."""
        return [{'vmid': vm.vmid, 'name': vm.name, 'node': vm.node, 'status': vm.status, 'pool': self._pool_of_vm(vm.vmid), 'config': vm.config}
                for vm in self.vms if not vm.template]

    def files(self):
        return sorted('{0}:{1}'.format(name, file) for name, store in self.storages.items() for file in store['files'])

    def drive(self, file):
        """The content of an ISO image, in base64, if a VM has it in a drive."""
        storage, _, name = file.partition(':')
        is_used = any('{0}:iso/{1}'.format(storage, name) in str(value) for vm in self.vms for value in vm.config.values())
        there = name in self.storages[storage]['files']
        return base64.b64encode(self.drives[storage, name]).decode() if there and is_used else None

    def calls(self):
        """Method and path of the requests since the last time."""
        seen, self.requests = self.requests, []
        return ['{0} {1}'.format(method, path.removeprefix('/api2/json')) for method, path, _body in seen]

    def withhold(self, token, privilege):
        """Makes a token that may do everything but that; all others may do everything."""
        self.apitokens[token] = 'secret'
        for name in self.apitokens:
            self.grant(name, '/', *(it for it in PRIVILEGES if name != token or it != privilege))

    def say(self, name, text):
        """What the agent of a VM shows of the report."""
        self.named(name).agent = {'files': {'C:\\ProgramData\\capw\\report.log': text}}

    def named(self, name):
        return next(vm for vm in self.vms if vm.name == name)

    def remove(self, name):
        self.vms.remove(self.named(name))


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--certificate', required=True)
    parser.add_argument('--key', required=True)
    parser.add_argument('--guests', help='where capw guests looks for VMs; without it they have no guests')
    args = parser.parse_args()
    pve = Cluster()
    if args.guests:
        guests = Guests(pve, args.guests)
        templates, pve.vms = pve.vms, Vms(guests)
        pve.vms.extend(templates)
        # As slow as a cluster at its fastest: what a VM is between two calls can be seen from outside.
        pve.task_seconds = 0.1
    await pve.start(args.certificate, args.key)
    print('127.0.0.1:{0}'.format(pve.port), flush=True)
    running = asyncio.ensure_future(guests.run()) if args.guests else None
    if running:
        # A guest that cannot be looked after ends the cluster.
        running.add_done_callback(lambda done: os._exit(1) if not done.cancelled() and done.exception() else None)
    lines, loop = asyncio.Queue(), asyncio.get_running_loop()

    def read():
        for line in sys.stdin:
            loop.call_soon_threadsafe(lines.put_nowait, line)
        loop.call_soon_threadsafe(lines.put_nowait, None)
    threading.Thread(target=read, daemon=True).start()
    while (line := await lines.get()) is not None:
        try:
            value = eval(line, {'pve': pve})
            if asyncio.iscoroutine(value):
                value = await value
            answer = json.dumps(value, default=repr)
        except Exception as error:
            answer = json.dumps({'error': repr(error)})
        print(answer, flush=True)


asyncio.run(main())
