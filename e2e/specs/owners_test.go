//go:build e2e

package specs

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/test/framework"
)

type ownersOfKinds = map[string]func(types.NamespacedName, []metav1.OwnerReference) error

const (
	bootstrap      = "bootstrap.cluster.x-k8s.io"
	controlPlane   = "controlplane.cluster.x-k8s.io"
	infrastructure = "infrastructure.cluster.x-k8s.io"
)

// finalizers are what our kinds have, and no others.
var finalizers = map[string]func(types.NamespacedName) []string{
	"ExternalControlPlane": always("externalcontrolplane." + controlPlane),
	"WindowsBootstrapConfig": func(name types.NamespacedName) []string {
		// That of a pool is copied for each machine: no token was made for it.
		if strings.HasSuffix(name.Name, "-pool") {
			return nil
		}
		return []string{"windowsbootstrapconfig." + bootstrap}
	},
	"WindowsHypervisor": always("windowshypervisor." + infrastructure),
	"WindowsMachine":    always("windowsmachine." + infrastructure),
	"WindowsNodePool":   always("windowsnodepool." + infrastructure),
}

func always(finalizer string) func(types.NamespacedName) []string {
	return func(types.NamespacedName) []string { return []string{finalizer} }
}

// owners are the owners of our kinds, exactly, as the table of Cluster API has them for its own.
func owners(cluster string, topology bool) ownersOfKinds {
	core := clusterv1.GroupVersion.String()
	ofCluster := owner(core, "Cluster")
	ofMachine, ofPool := controlled(core, "Machine"), controlled(core, "MachinePool")
	ofNodePool := owner(infrastructure+"/v1alpha1", "WindowsNodePool")
	ofWindowsMachine := owner(infrastructure+"/v1alpha1", "WindowsMachine")
	// Core controls what it makes from a class.
	part := ofCluster
	if topology {
		part = controlled(core, "Cluster")
	}
	class := only(owner(core, "ClusterClass"))
	return ownersOfKinds{
		"ExternalControlPlane":         only(part),
		"ExternalControlPlaneTemplate": class,
		"WindowsCluster":               only(part),
		"WindowsClusterTemplate":       class,
		"WindowsNodePoolTemplate":      class,
		// One of a class, or the Cluster's own.
		"WindowsMachineTemplate":         oneOf(refs{ofCluster}, refs{owner(core, "ClusterClass")}),
		"WindowsBootstrapConfigTemplate": oneOf(refs{ofCluster}, refs{owner(core, "ClusterClass")}),
		"WindowsNodePool":                only(ofPool),
		"WindowsHypervisor":              only(),
		// The second of each is a machine of a pool.
		"WindowsMachine": oneOf(refs{ofMachine}, refs{ofMachine, ofNodePool}),
		// The second is that of a pool, the third the copy of one of its machines.
		"WindowsBootstrapConfig": oneOf(refs{ofMachine}, refs{ofPool}, refs{ofWindowsMachine}),
		"Secret": func(name types.NamespacedName, found []metav1.OwnerReference) error {
			if name.Name == cluster+"-external-kubeconfig" {
				return framework.HasExactOwners(found)
			}
			return framework.HasOneOfExactOwners(found,
				refs{controlled(controlPlane+"/v1alpha1", "ExternalControlPlane")},
				refs{controlled(bootstrap+"/v1alpha1", "WindowsBootstrapConfig")})
		},
	}
}

type refs = []metav1.OwnerReference

func owner(version, kind string) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: version, Kind: kind}
}

func controlled(version, kind string) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: version, Kind: kind, Controller: ptr.To(true)}
}

func only(wanted ...metav1.OwnerReference) func(types.NamespacedName, []metav1.OwnerReference) error {
	return oneOf(wanted)
}

func oneOf(wanted ...[]metav1.OwnerReference) func(types.NamespacedName, []metav1.OwnerReference) error {
	return func(_ types.NamespacedName, found []metav1.OwnerReference) error {
		return framework.HasOneOfExactOwners(found, wanted...)
	}
}
