package main

import (
	"net/http"
	"path"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vapi/library"
	"github.com/vmware/govmomi/vapi/rest"
	_ "github.com/vmware/govmomi/vapi/simulator"
	vapi "github.com/vmware/govmomi/vapi/vcenter"
	"github.com/vmware/govmomi/vim25/types"
)

const templates = rest.Path + "/vcenter/vm-template/library-items/"

// library makes a content library. The value of each of its items is its type; those of VM templates are clones of the first image.
func (v *vcenter) library(c command) error {
	session := rest.NewClient(v.client.Client)
	if err := session.Login(v.ctx, v.login); err != nil {
		return err
	}
	store, err := v.finder.Datastore(v.ctx, "/DC0/datastore/LocalDS_0")
	if err != nil {
		return err
	}
	manager := library.NewManager(session)
	storage := []library.StorageBacking{{DatastoreID: store.Reference().Value, Type: "DATASTORE"}}
	id, err := manager.CreateLibrary(v.ctx, library.Library{Name: c.Name, Type: "LOCAL", Storage: storage})
	if err != nil {
		return err
	}
	for name, kind := range c.Values {
		if kind == library.ItemTypeVMTX {
			err = v.libraryTemplate(session, id, name)
		} else {
			_, err = manager.CreateLibraryItem(v.ctx, library.Item{Name: name, Type: kind, LibraryID: id})
		}
		if err != nil {
			return err
		}
	}
	return session.Logout(v.ctx)
}

func (v *vcenter) libraryTemplate(session *rest.Client, id, name string) error {
	source, err := v.finder.VirtualMachine(v.ctx, "/DC0/vm/DC0_C0_RP0_VM0")
	if err != nil {
		return err
	}
	pool, err := v.finder.ResourcePool(v.ctx, "/DC0/host/DC0_C0/Resources")
	if err != nil {
		return err
	}
	folder, err := v.finder.Folder(v.ctx, "/DC0/vm")
	if err != nil {
		return err
	}
	placement := &library.Placement{Folder: folder.Reference().Value, ResourcePool: pool.Reference().Value}
	item, err := vapi.NewManager(session).CreateTemplate(v.ctx, vapi.Template{Library: id, Name: name, SourceVM: source.Reference().Value, Placement: placement})
	if err != nil {
		return err
	}
	template, err := v.finder.VirtualMachine(v.ctx, "/DC0/vm/"+name)
	if err != nil {
		return err
	}
	// The simulator's clone does not take it over.
	v.registry.Get(template.Reference()).(*simulator.VirtualMachine).Config.Firmware = string(types.GuestOsDescriptorFirmwareTypeEfi)
	v.lock.Lock()
	defer v.lock.Unlock()
	v.templates[item] = template.Reference().Value
	return nil
}

// libraryTemplateOf answers what the simulator leaves empty: which VM the item of a content library stands for.
func (v *vcenter) libraryTemplateOf(w http.ResponseWriter, r *http.Request) bool {
	v.lock.Lock()
	defer v.lock.Unlock()
	template, known := v.templates[path.Base(r.URL.Path)]
	is := known && r.Method == http.MethodGet && path.Dir(r.URL.Path)+"/" == templates && r.Header.Get("vmware-api-session-id") != ""
	if is {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"value":{"guest_OS":"WINDOWS_SERVER_2022","vm_template":"` + template + `"}}`))
	}
	return is
}
