package main

import (
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

const cluster = "/DC0/host/DC0_C0"

// group makes a VM group of the cluster, without VMs.
func (v *vcenter) group(name string) error {
	of, err := v.finder.ClusterComputeResource(v.ctx, cluster)
	if err != nil {
		return err
	}
	info := &types.ClusterVmGroup{ClusterGroupInfo: types.ClusterGroupInfo{Name: name}}
	spec := types.ClusterConfigSpecEx{GroupSpec: []types.ClusterGroupSpec{{ArrayUpdateSpec: types.ArrayUpdateSpec{Operation: "add"}, Info: info}}}
	task, err := of.Reconfigure(v.ctx, &spec, true)
	return wait(v.ctx, task, err)
}

// members lists the names of a group's VMs.
func (v *vcenter) members(name string) ([]string, error) {
	of, err := v.finder.ClusterComputeResource(v.ctx, cluster)
	if err != nil {
		return nil, err
	}
	config, err := of.Configuration(v.ctx)
	if err != nil {
		return nil, err
	}
	names := []string{}
	for _, group := range config.Group {
		vms, is := group.(*types.ClusterVmGroup)
		if !is || vms.Name != name {
			continue
		}
		for _, reference := range vms.Vm {
			var vm mo.VirtualMachine
			if err := property.DefaultCollector(v.client.Client).RetrieveOne(v.ctx, reference, []string{"name"}, &vm); err != nil {
				return nil, err
			}
			names = append(names, vm.Name)
		}
	}
	return names, nil
}
