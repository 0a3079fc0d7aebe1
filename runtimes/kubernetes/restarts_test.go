package kubernetes

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// workloadYAML is a workload of one pod by its kind and name, with more in the spec of its pods.
func workloadYAML(kind, name, image, more string) string {
	return fmt.Sprintf(`{apiVersion: apps/v1, kind: %s, metadata: {name: %s}, spec: {serviceName: x, selector: {matchLabels: {app: %s}},
		template: {metadata: {labels: {app: %s}}, spec: {containers: [{name: c, image: "%s"%s}]}}}}`, kind, name, name, name, image, more)
}

func deploymentYAML(name, image, more string) string {
	return strings.Replace(workloadYAML("Deployment", name, image, more), "serviceName: x, ", "", 1)
}

func jobYAML(command string, annotations ...string) string {
	return fmt.Sprintf(`{apiVersion: batch/v1, kind: Job, metadata: {name: once, annotations: {%s}}, spec: {backoffLimit: 0, template: {spec: {
		restartPolicy: Never, containers: [{name: c, image: "x", command: ["%s"]}]}}}}`, strings.Join(annotations, ", "), command)
}

func budgetYAML(unavailable int) string {
	return fmt.Sprintf("{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: web}, spec: {maxUnavailable: %d, selector: {matchLabels: {app: web}}}}", unavailable)
}

const usesSettings = ", envFrom: [{configMapRef: {name: settings}}]"

// pods are the pods that run, by the workload that they are of.
func (d *recordingCluster) pods() map[string][]types.UID {
	d.Helper()
	list, err := d.admin.typed.CoreV1().Pods(d.namespace).List(d.Context(), metav1.ListOptions{})
	require.NoError(d, err)
	all := map[string][]types.UID{}
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil {
			all[pod.Labels["app"]] = append(all[pod.Labels["app"]], pod.UID)
		}
	}
	for _, of := range all {
		slices.Sort(of)
	}
	return all
}

func jobNamedYAML(name string) string {
	return strings.Replace(jobYAML("/bin/true"), "name: once", "name: "+name, 1)
}

// A change of a PodDisruptionBudget and of a ConfigMap replaces the pods that use it, and no others; a Job that has ended is not
// changed, and still counts as being at the new version.
func TestAChangeReplacesOnlyAffectedPods_H1(t *testing.T) {
	d := newTestCluster(t).recording()
	at := func(version, image string, unavailable int, setting string) runtimes.Request {
		return d.instance(version, deploymentYAML("web", image, ""), deploymentYAML("uses", "uses:1", usesSettings), workloadYAML("StatefulSet", "db", "db:1", ""),
			jobYAML("/bin/true"), budgetYAML(unavailable), configOf("settings", setting), configOf("unused", setting))
	}
	v1 := at("v1", "web:1", 1, "a")
	d.mustApply(v1)
	d.until(v1, "v1", settled("v1"))
	first, job := d.pods(), d.liveObject("Job", "once").GetUID()

	budget := at("v1-i2", "web:1", 2, "a")
	require.Contains(t, d.mustApply(budget), "configured PodDisruptionBudget/web (2 fields)")
	d.until(budget, "another budget", settled("v1-i2"))
	require.Equal(t, first, d.pods(), "no pods were replaced")

	setting := at("v1-i3", "web:1", 2, "b")
	require.Contains(t, d.mustApply(setting), "configured Deployment/uses (its pods are replaced: their configuration changes)")
	d.until(setting, "another setting", settled("v1-i3"))
	second := d.pods()
	require.NotEqual(t, first["uses"], second["uses"])
	second["uses"] = first["uses"]
	require.Equal(t, first, second)

	image := at("v2", "web:2", 2, "b")
	d.mustApply(image)
	d.until(image, "another image", settled("v2"))
	third := d.pods()
	require.NotEqual(t, first["web"], third["web"])
	require.Equal(t, first["db"], third["db"])
	require.Equal(t, job, d.liveObject("Job", "once").GetUID())
	d.takeWrites()
	require.Equal(t, []string{"unchanged 7 objects"}, d.mustApply(image))
	require.Contains(t, d.mustRefuse(d.instance("v3", jobYAML("/bin/echo")), true), "field is immutable")
}

// A rollback from a version that does not change the pods, or from a failed version, keeps the running pods, and they count as being
// of the requested version.
func TestRollbackKeepsThePodsOfTheSameTemplate_H1(t *testing.T) {
	d := newTestCluster(t).recording()
	at := func(version, image string, unavailable int) runtimes.Request {
		return d.instance(version, deploymentYAML("web", image, ""), workloadYAML("StatefulSet", "db", "db:1", ""), budgetYAML(unavailable))
	}
	d.mustApply(at("v1", "web:1", 1))
	d.until(at("v1", "web:1", 1), "v1", settled("v1"))
	first := d.pods()
	for _, in := range []runtimes.Request{at("v2", "web:1", 2), at("v1", "web:1", 1), at("v2", "web:1", 2)} {
		d.mustApply(in)
		d.until(in, in.FullVersion, settled(in.FullVersion))
		require.Equal(t, first, d.pods())
	}

	broken := at("v3", "web:nopull", 2)
	d.mustApply(broken)
	d.until(broken, "both versions", func(objects []entities.Object) bool {
		return slices.Equal(activeOf(objects, "Deployment", "web"), []string{"v3", "v2"}) && slices.Equal(activeOf(objects, "StatefulSet", "db"), []string{"v3"})
	})
	back := at("v2", "web:1", 2)
	d.mustApply(back)
	d.until(back, "v2 again", settled("v2"))
	d.wait("the pods of v3 to go", func() bool { return maps.EqualFunc(first, d.pods(), slices.Equal) }, func() any { return d.pods() })
}

// The pods of a StatefulSet that are not replaced yet are of the last version that included them, not of the one that created them.
func TestOldPodsHaveThePreviousVersion_H1(t *testing.T) {
	d := newTestCluster(t).recording()
	at := func(version, image string, unavailable int) runtimes.Request {
		return d.instance(version, strings.Replace(workloadYAML("StatefulSet", "db", image, ""), "spec: {", "spec: {updateStrategy: {type: OnDelete}, ", 1), budgetYAML(unavailable))
	}
	for _, in := range []runtimes.Request{at("v1", "db:1", 1), at("v2", "db:1", 2)} {
		d.mustApply(in)
		d.until(in, in.FullVersion, func(objects []entities.Object) bool { // one that is updated by hand is well without pods
			return settled(in.FullVersion)(objects) && objects[1].Versions[0].AvailableReplicas == 1
		})
	}
	v3 := at("v3", "db:2", 2)
	d.mustApply(v3)
	d.until(v3, "the old pod", func(objects []entities.Object) bool {
		return slices.Equal(activeOf(objects, "StatefulSet", "db"), []string{"v2"})
	})
	v4 := at("v4", "db:3", 2)
	d.mustApply(v4)
	d.until(v4, "the old pod, later", func(objects []entities.Object) bool {
		return slices.Equal(activeOf(objects, "StatefulSet", "db"), []string{"v2"})
	})
}

func activeOf(objects []entities.Object, kind, name string) (all []string) {
	for _, o := range objects {
		for _, v := range o.Versions {
			if o.Type == kind && o.Name == name && v.Active {
				all = append(all, v.Version)
			}
		}
	}
	return all
}

// A change of configuration that was cut off before the pods that use it were reached is finished.
func TestAChangeOfConfigurationIsFinished_H1_A11(t *testing.T) {
	d := newTestCluster(t).recording()
	at := func(version, setting string) runtimes.Request {
		return d.instance(version, deploymentYAML("uses", "uses:1", usesSettings), configOf("settings", setting))
	}
	d.mustApply(at("v1", "a"))
	d.until(at("v1", "a"), "v1", settled("v1"))
	first := d.pods()
	d.injectFault(func(req *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		if isWrite(req) && strings.HasSuffix(req.URL.Path, "/uses") {
			return nil, errConnectionCut
		}
		return send()
	})
	d.mustRefuse(at("v2", "b"), false)
	d.injectFault(nil)
	require.Equal(t, first, d.pods())
	d.mustApply(at("v2", "b"))
	d.until(at("v2", "b"), "v2", settled("v2"))
	require.NotEqual(t, first, d.pods())
}

// What a change of one ConfigMap costs in a service of a hundred objects.
func TestRequestsForAChangeOfOneConfigMap_H1(t *testing.T) {
	d := newTestCluster(t).recording()
	const each = 20 // of five kinds
	at := func(version, setting string) runtimes.Request {
		objects := []string{deploymentYAML("uses", "uses:1", usesSettings), configOf("settings", setting)}
		for n := range each {
			name := fmt.Sprintf("other-%d", n)
			objects = append(objects, configOf(name, "x"), jobNamedYAML(name),
				"{apiVersion: v1, kind: Service, metadata: {name: "+name+"}, spec: {ports: [{port: 80}]}}",
				"{apiVersion: v1, kind: ServiceAccount, metadata: {name: "+name+"}}")
			if n > 1 {
				objects = append(objects, deploymentYAML(name, "x:1", ""))
			}
		}
		return d.instance(version, objects...)
	}
	v1 := at("v1", "a")
	d.mustApply(v1)
	d.until(v1, "v1", settled("v1"))
	first := d.pods()
	d.takeWrites()
	v2 := at("v1-i2", "b")
	d.mustApply(v2)
	writes, asked := d.takeWrites()
	d.until(v2, "v1-i2", settled("v1-i2"))
	second, replaced := d.pods(), 0
	delete(first, "") // of Jobs
	for name := range second {
		if name != "" && !slices.Equal(first[name], second[name]) {
			replaced++
		}
	}
	objects := len(v1.Payload.Kubernetes.Objects)
	t.Logf("%d objects, %d workloads: %d requests, %d of them writes, %d of the workloads restarted", objects, len(first), asked, len(writes), replaced)
	require.Equal(t, 1, replaced)
	require.Len(t, writes, objects, "each gets its version")
	require.Less(t, asked, 3*objects)
}
