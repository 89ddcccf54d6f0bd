package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/event"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/session"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

type vcenter struct {
	ctx      context.Context
	client   *govmomi.Client
	finder   *find.Finder
	registry *simulator.Registry
	login    *url.Userinfo
	lock     sync.Mutex
	requests map[string]int
	// The privilege that every user lacks, by the id of the folder.
	withheld map[string]string
	clones   []*clone
	// The templates of a content library, by the id of their item.
	templates map[string]string
}

// command is what a test asks for. Names of folders and VMs are below the datacenter's folder of VMs.
type command struct {
	Do     string            `json:"do"`
	Folder string            `json:"folder"`
	Name   string            `json:"name"`
	UUID   string            `json:"uuid"`
	Values map[string]string `json:"values"`
	Task   string            `json:"task"`
	Millis int               `json:"millis"`
}

// machine is a VM as govmomi's client reads it.
type machine struct {
	Name     string            `json:"name"`
	UUID     string            `json:"uuid"`
	Power    string            `json:"power"`
	CPUs     int32             `json:"cpus"`
	Memory   int32             `json:"memory"`
	Firmware string            `json:"firmware"`
	Disks    []int64           `json:"disks"`
	Stores   []string          `json:"stores"`
	Networks []string          `json:"networks"`
	Drives   []string          `json:"drives"`
	Values   map[string]string `json:"values"`
}

func (v *vcenter) carryOut(line []byte) (any, error) {
	var c command
	if err := json.Unmarshal(line, &c); err != nil {
		return nil, err
	}
	switch c.Do {
	case "folder":
		parent, err := v.finder.Folder(v.ctx, "/DC0/vm")
		if err != nil {
			return nil, err
		}
		_, err = parent.CreateFolder(v.ctx, c.Name)
		return c.Name, err
	case "template":
		return c.Name, v.template(c.Name)
	case "storage pod":
		return c.Name, v.storagePod(c)
	case "library":
		return c.Name, v.library(c)
	case "group":
		return c.Name, v.group(c.Name)
	case "members":
		return v.members(c.Name)
	case "file":
		return v.file(c)
	case "withhold", "grant":
		folder, err := v.finder.Folder(v.ctx, path.Join("/DC0/vm", c.Folder))
		if err != nil {
			return nil, err
		}
		v.lock.Lock()
		defer v.lock.Unlock()
		v.withheld[folder.Reference().Value] = c.Name
		if c.Do == "grant" {
			delete(v.withheld, folder.Reference().Value)
		}
		return c.Name, nil
	case "vms":
		return v.machines(c.Folder)
	case "occupy":
		return c.Name, v.occupy(c)
	case "move":
		vm, err := v.vm(c)
		if err != nil {
			return nil, err
		}
		to, err := v.finder.Folder(v.ctx, "/DC0/vm")
		if err != nil {
			return nil, err
		}
		task, err := to.MoveInto(v.ctx, []types.ManagedObjectReference{vm.Reference()})
		return c.Name, wait(v.ctx, task, err)
	case "destroy":
		return c.Name, v.destroy(c)
	case "clear":
		machines, err := v.machines(c.Folder)
		for _, machine := range machines {
			if err == nil {
				err = v.destroy(command{Folder: c.Folder, Name: machine.Name})
			}
		}
		return c.Folder, err
	case "off", "suspend":
		vm, err := v.vm(c)
		if err != nil {
			return nil, err
		}
		act := map[string]func(context.Context) (*object.Task, error){"off": vm.PowerOff, "suspend": vm.Suspend}[c.Do]
		task, err := act(v.ctx)
		return c.Name, wait(v.ctx, task, err)
	case "alarm":
		vm, err := v.vm(c)
		if err != nil {
			return nil, err
		}
		// An alarm of the simulator's own, "vcsim VM Alarm", follows such events.
		said := &types.EventEx{EventTypeId: "vcsim.vm." + c.Task, ObjectType: "VirtualMachine", ObjectId: vm.Reference().Value}
		return c.Name, event.NewManager(v.client.Client).PostEvent(v.ctx, said)
	case "set":
		vm, err := v.vm(c)
		if err != nil {
			return nil, err
		}
		var spec types.VirtualMachineConfigSpec
		for key, value := range c.Values {
			spec.ExtraConfig = append(spec.ExtraConfig, &types.OptionValue{Key: key, Value: value})
		}
		task, err := vm.Reconfigure(v.ctx, spec)
		return c.Name, wait(v.ctx, task, err)
	case "delay":
		simulator.TaskDelay.MethodDelay = map[string]int{c.Task: c.Millis, "LockHandoff": 0}
		return c.Task, nil
	case "expire":
		return v.expire()
	case "requests":
		v.lock.Lock()
		defer v.lock.Unlock()
		told := v.requests
		v.requests = map[string]int{}
		return told, nil
	}
	return nil, fmt.Errorf("no command %q", c.Do)
}

// prepare makes the templates: those of releases with a snapshot, one without.
func (v *vcenter) prepare() error {
	v.finder = find.NewFinder(v.client.Client)
	source, err := v.finder.VirtualMachine(v.ctx, "/DC0/vm/DC0_C0_RP0_VM0")
	if err != nil {
		return err
	}
	task, err := source.PowerOff(v.ctx)
	if err := wait(v.ctx, task, err); err != nil {
		return err
	}
	for _, name := range []string{"windows-server-2022", "windows-server-2025", hanging, "without-snapshot"} {
		if err := v.template(name); err != nil {
			return err
		}
	}
	return nil
}

func (v *vcenter) template(name string) error {
	source, err := v.finder.VirtualMachine(v.ctx, "/DC0/vm/DC0_C0_RP0_VM0")
	if err != nil {
		return err
	}
	pool, err := v.finder.ResourcePool(v.ctx, "/DC0/host/DC0_C0/Resources")
	if err != nil {
		return err
	}
	parent, err := v.finder.Folder(v.ctx, "/DC0/vm")
	if err != nil {
		return err
	}
	to := pool.Reference()
	task, err := source.Clone(v.ctx, parent, name, types.VirtualMachineCloneSpec{Location: types.VirtualMachineRelocateSpec{Pool: &to}})
	if err := wait(v.ctx, task, err); err != nil {
		return err
	}
	template, err := v.finder.VirtualMachine(v.ctx, "/DC0/vm/"+name)
	if err != nil {
		return err
	}
	spec := types.VirtualMachineConfigSpec{Firmware: string(types.GuestOsDescriptorFirmwareTypeEfi)}
	for id, image := range images {
		if image == name {
			spec.GuestId = id
		}
	}
	task, err = template.Reconfigure(v.ctx, spec)
	if err := wait(v.ctx, task, err); err != nil {
		return err
	}
	if name != "without-snapshot" {
		task, err = template.CreateSnapshot(v.ctx, "sealed", "", false, false)
		if err := wait(v.ctx, task, err); err != nil {
			return err
		}
	}
	return template.MarkAsTemplate(v.ctx)
}

func (v *vcenter) vm(c command) (*object.VirtualMachine, error) {
	return v.finder.VirtualMachine(v.ctx, path.Join("/DC0/vm", c.Folder, c.Name))
}

func (v *vcenter) destroy(c command) error {
	vm, err := v.vm(c)
	if err != nil {
		return err
	}
	if task, err := vm.PowerOff(v.ctx); err == nil {
		_ = task.Wait(v.ctx)
	}
	for v.making(vm.Reference()) != "" {
		time.Sleep(10 * time.Millisecond)
	}
	task, err := vm.Destroy(v.ctx)
	return wait(v.ctx, task, err)
}

func (v *vcenter) occupy(c command) error {
	folder, err := v.finder.Folder(v.ctx, path.Join("/DC0/vm", c.Folder))
	if err != nil {
		return err
	}
	pool, err := v.finder.ResourcePool(v.ctx, "/DC0/host/DC0_C0/Resources")
	if err != nil {
		return err
	}
	task, err := folder.CreateVM(v.ctx, types.VirtualMachineConfigSpec{
		Name: c.Name, InstanceUuid: c.UUID, GuestId: "otherGuest", Files: &types.VirtualMachineFileInfo{VmPathName: "[LocalDS_0]"},
	}, pool, nil)
	return wait(v.ctx, task, err)
}

func (v *vcenter) machines(folder string) ([]machine, error) {
	found := []machine{}
	parent, err := v.finder.Folder(v.ctx, path.Join("/DC0/vm", folder))
	if err != nil {
		return nil, err
	}
	children, err := parent.Children(v.ctx)
	if err != nil {
		return nil, err
	}
	for _, child := range children {
		if child.Reference().Type != "VirtualMachine" {
			continue
		}
		var vm mo.VirtualMachine
		if err := property.DefaultCollector(v.client.Client).RetrieveOne(v.ctx, child.Reference(), []string{"name", "config", "runtime"}, &vm); err != nil {
			return nil, err
		}
		it := machine{
			Name: vm.Name, UUID: vm.Config.InstanceUuid, Power: string(vm.Runtime.PowerState), CPUs: vm.Config.Hardware.NumCPU,
			Memory: vm.Config.Hardware.MemoryMB, Firmware: vm.Config.Firmware, Values: map[string]string{},
		}
		for _, value := range vm.Config.ExtraConfig {
			it.Values[value.GetOptionValue().Key] = fmt.Sprint(value.GetOptionValue().Value)
		}
		for _, device := range vm.Config.Hardware.Device {
			switch device := device.(type) {
			case *types.VirtualDisk:
				it.Disks = append(it.Disks, device.CapacityInKB>>20)
				var file object.DatastorePath
				file.FromString(device.Backing.(types.BaseVirtualDeviceFileBackingInfo).GetVirtualDeviceFileBackingInfo().FileName)
				it.Stores = append(it.Stores, file.Datastore)
			case *types.VirtualCdrom:
				if iso, is := device.Backing.(*types.VirtualCdromIsoBackingInfo); is {
					it.Drives = append(it.Drives, iso.FileName)
				}
			case types.BaseVirtualEthernetCard:
				it.Networks = append(it.Networks, network(device.GetVirtualEthernetCard().Backing))
			}
		}
		found = append(found, it)
	}
	return found, nil
}

func network(backing types.BaseVirtualDeviceBackingInfo) string {
	switch backing := backing.(type) {
	case *types.VirtualEthernetCardNetworkBackingInfo:
		return backing.DeviceName
	case *types.VirtualEthernetCardDistributedVirtualPortBackingInfo:
		return backing.Port.PortgroupKey
	}
	return fmt.Sprintf("%T", backing)
}

// expire ends every session but its own.
func (v *vcenter) expire() (int, error) {
	var manager mo.SessionManager
	err := property.DefaultCollector(v.client.Client).RetrieveOne(v.ctx, *v.client.ServiceContent.SessionManager, []string{"sessionList"}, &manager)
	if err != nil {
		return 0, err
	}
	own, err := session.NewManager(v.client.Client).UserSession(v.ctx)
	if err != nil {
		return 0, err
	}
	ended := 0
	for _, other := range manager.SessionList {
		if !strings.EqualFold(other.Key, own.Key) {
			if err := session.NewManager(v.client.Client).TerminateSession(v.ctx, []string{other.Key}); err == nil {
				ended++
			}
		}
	}
	return ended, nil
}

func wait(ctx context.Context, task *object.Task, err error) error {
	if err != nil {
		return err
	}
	return task.Wait(ctx)
}
