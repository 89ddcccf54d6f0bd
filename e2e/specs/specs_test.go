//go:build e2e

package specs

import (
	"context"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterctlcluster "sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"
	"sigs.k8s.io/cluster-api/test/e2e"
	"sigs.k8s.io/cluster-api/test/framework"
	"sigs.k8s.io/cluster-api/test/framework/clusterctl"
)

// The templates are those that CAPW ships. Flavors that it does not ship are made of them by the story.
var _ = Describe("plain", func() { quickStart("", 3, false) })
var _ = Describe("topology", func() { quickStart("topology", 2, true) })
var _ = Describe("pool", func() { quickStart("machine-pool", 2, false) })

// quickStart makes a cluster, takes away and falsifies what Kubernetes and Cluster API find its objects by, and deletes it.
func quickStart(flavor string, machines int64, topology bool) {
	e2e.QuickStartSpec(ctx, func() e2e.QuickStartSpecInput {
		return e2e.QuickStartSpecInput{
			E2EConfig:             config,
			ClusterctlConfigPath:  told("CLUSTERCTL_CONFIG"),
			BootstrapClusterProxy: management,
			ArtifactFolder:        told("ARTIFACTS"),
			Flavor:                &flavor,
			WorkerMachineCount:    &machines,
			ControlPlaneWaiters:   waiters,
			PostNamespaceCreated:  prepare,
			PostMachinesProvisioned: func(proxy framework.ClusterProxy, namespace, cluster string) {
				resilience(ctx, proxy, namespace, cluster, topology)
			},
		}
	})
}

func resilience(ctx context.Context, proxy framework.ClusterProxy, namespace, cluster string, topology bool) {
	of := clusterctlcluster.FilterClusterObjectsWithNameFilter(cluster)
	owned := []ownersOfKinds{framework.CoreOwnerReferenceAssertion, framework.ExpOwnerReferenceAssertions, owners(cluster, topology)}
	By("Checking that owner references that were taken away come back")
	framework.ValidateOwnerReferencesResilience(ctx, proxy, namespace, cluster, of, owned...)
	By("Checking that owner references get the current version again")
	framework.ValidateOwnerReferencesOnUpdate(ctx, proxy, namespace, cluster, of, owned...)
	By("Checking that finalizers that were taken away come back")
	core := framework.CoreFinalizersAssertionWithLegacyClusters
	if topology {
		core = framework.CoreFinalizersAssertionWithClassyClusters
	}
	framework.ValidateFinalizersResilience(ctx, proxy, namespace, cluster, of, core, framework.ExpFinalizersAssertion, finalizers)
	By("Checking that nothing is written at rest")
	framework.ValidateResourceVersionStable(ctx, framework.ValidateResourceVersionStableInput{
		ClusterProxy:             proxy,
		Namespace:                namespace,
		OwnerGraphFilterFunction: of,
		WaitToBecomeStable:       config.GetIntervals("", "wait-resource-versions-become-stable"),
		WaitToRemainStable:       config.GetIntervals("", "wait-resource-versions-remain-stable"),
	})
}

var _ = Describe("scale", func() {
	e2e.MachineDeploymentScaleSpec(ctx, func() e2e.MachineDeploymentScaleSpecInput {
		return e2e.MachineDeploymentScaleSpecInput{
			E2EConfig:             config,
			ClusterctlConfigPath:  told("CLUSTERCTL_CONFIG"),
			BootstrapClusterProxy: management,
			ArtifactFolder:        told("ARTIFACTS"),
			ControlPlaneWaiters:   waiters,
			PostNamespaceCreated:  prepare,
		}
	})
})

var _ = Describe("remediation", func() {
	e2e.MachineDeploymentRemediationSpec(ctx, func() e2e.MachineDeploymentRemediationSpecInput {
		return e2e.MachineDeploymentRemediationSpecInput{
			E2EConfig:             config,
			ClusterctlConfigPath:  told("CLUSTERCTL_CONFIG"),
			BootstrapClusterProxy: management,
			ArtifactFolder:        told("ARTIFACTS"),
			ControlPlaneWaiters:   waiters,
			PostNamespaceCreated:  prepare,
		}
	})
})

// Core's spec of rollouts counts the Machines of a KubeadmControlPlane. This one does what that does with the MachineDeployment.
var _ = Describe("rollout", func() {
	It("changes Machines in place, and replaces them when their template is another one", func() {
		const name = "rollout"
		artifacts := filepath.Join(told("ARTIFACTS"), name)
		Expect(os.MkdirAll(artifacts, 0o750)).To(Succeed())
		namespace, cancelWatches := framework.SetupSpecNamespace(ctx, name, management, artifacts, prepare)
		made := new(clusterctl.ApplyClusterTemplateAndWaitResult)
		DeferCleanup(func() {
			framework.DumpSpecResourcesAndCleanup(ctx, name, management, told("CLUSTERCTL_CONFIG"), artifacts, namespace, cancelWatches, made.Cluster, config.GetIntervals, false)
		})
		clusterctl.ApplyClusterTemplateAndWait(ctx, clusterctl.ApplyClusterTemplateAndWaitInput{
			ClusterProxy: management,
			ConfigCluster: clusterctl.ConfigClusterInput{
				LogFolder:                filepath.Join(artifacts, "clusters"),
				ClusterctlConfigPath:     told("CLUSTERCTL_CONFIG"),
				KubeconfigPath:           management.GetKubeconfigPath(),
				InfrastructureProvider:   clusterctl.DefaultInfrastructureProvider,
				Namespace:                namespace.Name,
				ClusterName:              name,
				KubernetesVersion:        config.MustGetVariable(e2e.KubernetesVersion),
				ControlPlaneMachineCount: ptr.To[int64](1),
				WorkerMachineCount:       ptr.To[int64](2),
			},
			ControlPlaneWaiters:          waiters,
			WaitForClusterIntervals:      config.GetIntervals(name, "wait-cluster"),
			WaitForControlPlaneIntervals: config.GetIntervals(name, "wait-control-plane"),
			WaitForMachineDeployments:    config.GetIntervals(name, "wait-worker-nodes"),
		}, made)
		By("Changing what MachineDeployments hand on to their Machines in place")
		framework.UpgradeMachineDeploymentInPlaceMutableFieldsAndWait(ctx, framework.UpgradeMachineDeploymentInPlaceMutableFieldsAndWaitInput{
			ClusterProxy:                management,
			Cluster:                     made.Cluster,
			WaitForMachinesToBeUpgraded: config.GetIntervals(name, "wait-machine-upgrade"),
			MachineDeployments:          made.MachineDeployments,
		})
		By("Replacing the Machines")
		framework.UpgradeMachineDeploymentInfrastructureRefAndWait(ctx, framework.UpgradeMachineDeploymentInfrastructureRefAndWaitInput{
			ClusterProxy:                management,
			Cluster:                     made.Cluster,
			WaitForMachinesToBeUpgraded: config.GetIntervals(name, "wait-machine-upgrade"),
			MachineDeployments:          made.MachineDeployments,
		})
		framework.VerifyClusterAvailable(ctx, framework.VerifyClusterAvailableInput{Getter: management.GetClient(), Name: name, Namespace: namespace.Name})
		framework.VerifyMachinesReady(ctx, framework.VerifyMachinesReadyInput{Lister: management.GetClient(), Name: name, Namespace: namespace.Name})
	})
})

var _ = Describe("machine pool", func() {
	e2e.MachinePoolSpec(ctx, func() e2e.MachinePoolInput {
		return e2e.MachinePoolInput{
			E2EConfig:             config,
			ClusterctlConfigPath:  told("CLUSTERCTL_CONFIG"),
			BootstrapClusterProxy: management,
			ArtifactFolder:        told("ARTIFACTS"),
			ControlPlaneWaiters:   waiters,
			PostNamespaceCreated:  prepare,
		}
	})
})

var _ = Describe("deletion", func() {
	e2e.ClusterDeletionSpec(ctx, func() e2e.ClusterDeletionSpecInput {
		return e2e.ClusterDeletionSpecInput{
			E2EConfig:             config,
			ClusterctlConfigPath:  told("CLUSTERCTL_CONFIG"),
			BootstrapClusterProxy: management,
			ArtifactFolder:        filepath.Join(told("ARTIFACTS"), "deletion"),
			Flavor:                ptr.To("topology"),
			WorkerMachineCount:    ptr.To[int64](2),
			ControlPlaneWaiters:   waiters,
			PostNamespaceCreated:  prepare,
			// Each is held by its blocking kind until it has been seen that nothing of the next one goes.
			ClusterDeletionPhases: []e2e.ClusterDeletionPhase{
				{ObjectFilter: kinds("MachineDeployment", "MachineSet", "Machine"), BlockingObjectFilter: kinds("Machine")},
				{ObjectFilter: kinds("ExternalControlPlane"), BlockingObjectFilter: kinds("ExternalControlPlane")},
				{ObjectFilter: kinds("WindowsCluster"), BlockingObjectFilter: kinds("WindowsCluster")},
			},
		}
	})
})

func kinds(wanted ...string) func(corev1.ObjectReference, []metav1.OwnerReference) bool {
	return func(object corev1.ObjectReference, _ []metav1.OwnerReference) bool {
		for _, kind := range wanted {
			if object.Kind == kind {
				return true
			}
		}
		return false
	}
}
