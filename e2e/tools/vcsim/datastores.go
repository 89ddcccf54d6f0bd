package main

import (
	"encoding/base64"
	"io"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// storagePod makes a cluster of datastores. The value of each of its datastores is its room in GiB, or what maintenance it is in.
func (v *vcenter) storagePod(c command) error {
	parent, err := v.finder.Folder(v.ctx, "/DC0/datastore")
	if err != nil {
		return err
	}
	pod, err := parent.CreateStoragePod(v.ctx, c.Name)
	if err != nil {
		return err
	}
	hosts, err := v.finder.HostSystemList(v.ctx, "/DC0/host/DC0_C0/*")
	if err != nil {
		return err
	}
	for name, value := range c.Values {
		directory, err := os.MkdirTemp("", "datastore-")
		if err != nil {
			return err
		}
		// One for all hosts: the simulator knows it by its name, and tells only the first caller its reference.
		var made *object.Datastore
		for _, host := range hosts {
			system, err := host.ConfigManager().DatastoreSystem(v.ctx)
			if err != nil {
				return err
			}
			datastore, err := system.CreateLocalDatastore(v.ctx, name, directory)
			if err != nil {
				return err
			}
			if made == nil {
				made = datastore
			}
		}
		task, err := pod.MoveInto(v.ctx, []types.ManagedObjectReference{made.Reference()})
		if err := wait(v.ctx, task, err); err != nil {
			return err
		}
		datastore := v.registry.Get(made.Reference()).(*simulator.Datastore)
		if room, err := strconv.ParseInt(value, 10, 64); err == nil {
			datastore.Summary.FreeSpace = room << 30
		} else {
			datastore.Summary.MaintenanceMode = value
		}
	}
	return nil
}

// file reads a file in the directory of the VM of that name, whether or not there is such a VM; empty: there is no such file.
func (v *vcenter) file(c command) (string, error) {
	store, err := v.finder.Datastore(v.ctx, "/DC0/datastore/LocalDS_0")
	if err != nil {
		return "", err
	}
	content, _, err := store.Download(v.ctx, path.Join(c.Name, c.Task), &soap.DefaultDownload)
	if err != nil && strings.Contains(err.Error(), "404") {
		return "", nil
	} else if err != nil {
		return "", err
	}
	defer content.Close()
	bytes, err := io.ReadAll(content)
	return base64.StdEncoding.EncodeToString(bytes), err
}
