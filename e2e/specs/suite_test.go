//go:build e2e

// Package specs runs Cluster API's own specs against CAPW. The story specs starts what they need and tells it by environment
// variables.
package specs

import (
	"context"
	"os"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/test/e2e"
	"sigs.k8s.io/cluster-api/test/framework"
	"sigs.k8s.io/cluster-api/test/framework/clusterctl"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var (
	ctx        = ctrl.SetupSignalHandler()
	management framework.ClusterProxy
	// Of the workload cluster.
	kubeconfig []byte
)

// How long a spec waits for something, and how often it looks. Specs that give no time of their own take the default.
var config = &clusterctl.E2EConfig{
	Variables: map[string]string{e2e.KubernetesVersion: os.Getenv("KUBERNETES_VERSION")},
	Intervals: map[string][]string{
		"default/wait-cluster":                         {"2m", "1s"},
		"default/wait-control-plane":                   {"2m", "1s"},
		"default/wait-worker-nodes":                    {"3m", "1s"},
		"default/wait-machine-pool-nodes":              {"3m", "1s"},
		"default/wait-machine-remediation":             {"3m", "1s"},
		"default/wait-machine-upgrade":                 {"3m", "1s"},
		"default/wait-delete-cluster":                  {"3m", "1s"},
		"default/wait-resource-versions-become-stable": {"2m", "3s"},
		"default/wait-resource-versions-remain-stable": {"1m", "3s"},
	},
}

func TestSpecs(t *testing.T) {
	ctrl.SetLogger(klog.Background())
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(3 * time.Minute)
	SetDefaultEventuallyPollingInterval(time.Second)
	RunSpecs(t, "Cluster API's specs")
}

var _ = BeforeSuite(func() {
	scheme := runtime.NewScheme()
	framework.TryAddDefaultSchemes(scheme)
	management = framework.NewClusterProxy("management", told("KUBECONFIG"), scheme)
	given, err := os.ReadFile(told("WORKLOAD_KUBECONFIG"))
	Expect(err).ToNot(HaveOccurred())
	kubeconfig = given
})

func told(name string) string {
	value := os.Getenv(name)
	Expect(value).ToNot(BeEmpty(), "%s is not set: run make specs", name)
	return value
}

// waiters stand for those that wait for a KubeadmControlPlane and its Machines.
var waiters = clusterctl.ControlPlaneWaiters{
	WaitForControlPlaneInitialized: func(ctx context.Context, input clusterctl.ApplyCustomClusterTemplateAndWaitInput, _ *clusterctl.ApplyCustomClusterTemplateAndWaitResult) {
		Eventually(func(g Gomega) {
			var cluster clusterv1.Cluster
			g.Expect(management.GetClient().Get(ctx, client.ObjectKey{Namespace: input.Namespace, Name: input.ClusterName}, &cluster)).To(Succeed())
			g.Expect(cluster.Status.Initialization.ControlPlaneInitialized).To(HaveValue(BeTrue()))
		}, input.WaitForControlPlaneIntervals...).Should(Succeed(), "the control plane was not initialized")
	},
	WaitForControlPlaneMachinesReady: func(context.Context, clusterctl.ApplyCustomClusterTemplateAndWaitInput, *clusterctl.ApplyCustomClusterTemplateAndWaitResult) {
	},
}

// prepare makes what the templates ask their user for: a hypervisor, and the kubeconfig of the existing control plane. Its name is
// that of the Cluster, which most specs choose later.
func prepare(_ framework.ClusterProxy, namespace string) {
	hypervisor := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1",
		"kind":       "WindowsHypervisor",
		"metadata":   map[string]any{"name": "lab", "namespace": namespace},
		"spec":       map[string]any{"simulated": map[string]any{}},
	}}
	Expect(management.GetClient().Create(ctx, hypervisor)).To(Succeed())
	go func() {
		defer GinkgoRecover()
		var clusters clusterv1.ClusterList
		Eventually(func(g Gomega) {
			g.Expect(management.GetClient().List(ctx, &clusters, client.InNamespace(namespace))).To(Succeed())
			g.Expect(clusters.Items).ToNot(BeEmpty())
		}).Should(Succeed(), "no Cluster in %s", namespace)
		secret := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: clusters.Items[0].Name + "-external-kubeconfig", Namespace: namespace},
			Data:       map[string][]byte{"value": kubeconfig},
		}
		Expect(management.GetClient().Create(ctx, secret)).To(Succeed())
	}()
}
