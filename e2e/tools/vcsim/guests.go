package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/types"
)

// Where a guest says what it does, by VMware's tools.
const report = "guestinfo.capw.report"

// What the templates are: their guest's operating system in the words of vSphere, which a clone keeps, and the image's name.
var images = map[string]string{
	string(types.VirtualMachineGuestOsIdentifierWindows2019srvNext_64Guest): "windows-server-2022",
	string(types.VirtualMachineGuestOsIdentifierWindows2022srvNext_64Guest): "windows-server-2025",
	string(types.VirtualMachineGuestOsIdentifierWindows9Server64Guest):      hanging,
}

// Guests of this image do not come to the end of their join.
const hanging = "windows-that-hangs"

// guests gives the VMs of a simulated vCenter guests: it writes what `capw guests` reads of a VM, and reads what its guest says. The
// directory is that of one data center, as the simulated hypervisor of capw keeps it (src/hypervisor/drivers/simulated/record.rs).
type guests struct {
	// Of its own: locks are held on behalf of a context.
	ctx       simulator.Context
	client    *vim25.Client
	directory string
	known     map[string]*guest
}

type guest struct {
	isOn   bool
	record map[string]any
	values []byte
	// Of the console that was read.
	offset int64
	said   string
}

// hardware is what a look at a VM shows.
type hardware struct {
	isOn    bool
	cpus    int32
	memory  int32
	image   string
	machine string
	values  map[string]string
}

func (g *guests) run() {
	for {
		began := time.Now()
		check(g.look())
		// Many VMs take longer to look at; the looks must not take the processor from the vCenter.
		time.Sleep(max(20*time.Millisecond, 10*time.Since(began)))
	}
}

func (g *guests) look() error {
	there := map[string]bool{}
	for _, entity := range g.ctx.Map.All("VirtualMachine") {
		vm := entity.(*simulator.VirtualMachine)
		uuid, seen := g.hardware(vm)
		if uuid == "" {
			continue
		}
		there[uuid] = true
		if err := g.follow(vm, uuid, seen); err != nil {
			return err
		}
	}
	for uuid := range g.known {
		if !there[uuid] {
			delete(g.known, uuid)
			home := filepath.Join(g.directory, uuid)
			// A rename first: the guest sees its end as one step.
			if err := os.Rename(home, home+".gone"); err != nil {
				return err
			}
			if err := os.RemoveAll(home + ".gone"); err != nil {
				return err
			}
		}
	}
	return nil
}

// hardware reads a VM that is whole; other VMs than those of capw have no mark.
func (g *guests) hardware(vm *simulator.VirtualMachine) (uuid string, seen hardware) {
	g.ctx.WithLock(vm, func() {
		if vm.Config == nil || vm.Config.Template {
			return
		}
		seen = hardware{
			isOn: vm.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOn,
			cpus: vm.Config.Hardware.NumCPU, memory: vm.Config.Hardware.MemoryMB,
			image:  images[vm.Config.GuestId],
			values: map[string]string{},
		}
		isOurs := false
		for _, option := range vm.Config.ExtraConfig {
			key := option.GetOptionValue().Key
			value, _ := option.GetOptionValue().Value.(string)
			isOurs = isOurs || key == "capw.mark"
			if key == "capw.machine" {
				seen.machine = value
			}
			if strings.HasPrefix(key, "guestinfo.") && key != report && value != "" {
				seen.values[key] = value
			}
		}
		if isOurs {
			uuid = vm.Config.InstanceUuid
		}
	})
	return uuid, seen
}

// follow writes what has changed of a VM, and tells what its guest has said.
func (g *guests) follow(vm *simulator.VirtualMachine, uuid string, seen hardware) error {
	home, it := filepath.Join(g.directory, uuid), g.known[uuid]
	if it == nil {
		it = &guest{record: map[string]any{
			"mark": "", "vm": uuid, "name": seen.machine, "cluster": "", "hostName": "", "image": seen.image,
			"cpus": seen.cpus, "memoryMib": seen.memory, "existsFrom": now(), "power": "Off", "since": now(), "powerOns": 0,
			"bootMilliseconds": 0, "joinMilliseconds": 0, "stopMilliseconds": 0, "faults": []string{},
		}}
		if seen.image == hanging {
			it.record["joinMilliseconds"] = time.Hour.Milliseconds()
		}
		if err := os.MkdirAll(filepath.Join(home, "disk"), 0o755); err != nil {
			return err
		}
		g.known[uuid] = it
	}
	values, err := json.Marshal(seen.values)
	if err != nil {
		return err
	}
	if !bytes.Equal(values, it.values) {
		it.values = values
		if len(seen.values) == 0 {
			err = os.RemoveAll(filepath.Join(home, "guestinfo.json"))
		} else {
			err = replace(filepath.Join(home, "guestinfo.json"), values)
		}
		if err != nil {
			return err
		}
	}
	if seen.isOn != it.isOn {
		it.isOn = seen.isOn
		it.record["since"], it.record["power"] = now(), "Off"
		if seen.isOn {
			it.record["power"], it.record["powerOns"] = "On", it.record["powerOns"].(int)+1
		}
		record, err := json.Marshal(it.record)
		if err != nil {
			return err
		}
		if err := replace(filepath.Join(home, "vm.json"), record); err != nil {
			return err
		}
		if seen.isOn {
			if err := g.set(vm, "SET.guest.ipAddress", address(uuid)); err != nil {
				return err
			}
		}
	}
	if line := it.listen(filepath.Join(home, "console.log")); line != it.said {
		it.said = line
		return g.set(vm, report, line)
	}
	return nil
}

// listen gives the newest whole report on the console.
func (it *guest) listen(console string) string {
	file, err := os.Open(console)
	if err != nil {
		return it.said
	}
	defer file.Close()
	text := make([]byte, 1<<20)
	count, _ := file.ReadAt(text, it.offset)
	whole := bytes.LastIndexByte(text[:count], '\n') + 1
	it.offset += int64(whole)
	newest := it.said
	for line := range strings.Lines(string(text[:whole])) {
		if strings.HasPrefix(line, "capw1 ") {
			newest = strings.TrimSpace(line)
		}
	}
	return newest
}

// set changes values of a VM as a client does.
func (g *guests) set(vm *simulator.VirtualMachine, key, value string) error {
	spec := types.VirtualMachineConfigSpec{ExtraConfig: []types.BaseOptionValue{&types.OptionValue{Key: key, Value: value}}}
	task, err := object.NewVirtualMachine(g.client, vm.Self).Reconfigure(context.Background(), spec)
	if err = wait(context.Background(), task, err); g.ctx.Map.Get(vm.Self) == nil {
		return nil
	}
	return err
}

// address of the guest, computed of the UUID as capw guests does it.
func address(uuid string) string {
	digits, err := hex.DecodeString(strings.ReplaceAll(uuid, "-", ""))
	check(err)
	return fmt.Sprintf("10.%d.%d.%d", digits[13], digits[14], 1+int(digits[15])%254)
}

func now() string {
	return time.Now().UTC().Format(time.RFC3339Nano)
}

func replace(path string, content []byte) error {
	if err := os.WriteFile(path+".part", content, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".part", path)
}
