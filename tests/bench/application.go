package main

import (
	"cmp"
	"fmt"
	"time"
)

// application is a configuration to publish.
type application struct {
	name     string
	channels int
	services []string
	version  string        // the services' initial version; empty for none
	steady   time.Duration // between readings of what is steady
	gates    string        // of every channel, as lines of YAML
	applies  int           // how many may run at once; 0 for no bound
	setting  string        // what a parameter defaults to; empty: hello
	// instances: each channel is a fleet of so many runtimes; 0 for the application's one runtime.
	instances int
	// shared are runtimes of several applications, for a channel each in turn, which one of them defines; none: the application has its own.
	shared  []string
	defines bool
	// on is where Deployments go. Without it the runtime is the fake one.
	on *namespace
}

// namespace is a place in a cluster.
type namespace struct{ kubeconfig, name string }

// deployment is what each service on Kubernetes is made of.
const deployment = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: ${{ service }}
spec:
  replicas: 1
  selector:
    matchLabels: {app: "${{ service }}"}
  template:
    metadata:
      labels: {app: "${{ service }}"}
    spec:
      containers:
      - name: web
        image: "registry.shop.dev/web:${{ version }}"
        env: [{name: GREETING, value: "${{ params.greeting }}"}]
        resources:
          requests: {cpu: 50m, memory: 64Mi}
          limits: {memory: 128Mi}
`

// files are the configuration, by name.
func (a application) files() map[string]string {
	files := map[string]string{"converge.yaml": a.yaml()}
	if a.on != nil {
		files["deployment.yaml"] = deployment
	}
	return files
}

// yaml declares channels c1, c2, … each behind the one before.
func (a application) yaml() string {
	text := fmt.Sprintf("apiVersion: converge/v1\nkind: Application\nname: %s\nreleaseChannels:\n", a.name)
	for n := 1; n <= a.channels; n++ {
		at := ""
		if a.on != nil {
			at = ", namespace: " + a.on.name
		}
		on := fmt.Sprintf("name: %s%s", a.runtimeOf(n), at)
		if a.instances > 0 {
			on = fmt.Sprintf("selector: {fleet: %s}", a.name)
		}
		text += fmt.Sprintf("- name: %s\n  runtimes: [{%s}]\n", channel(n), on)
		if n > 1 {
			text += fmt.Sprintf("  preconditions: [{releaseChannelStable: {releaseChannel: %s}}]\n", channel(n-1))
		}
		text += a.gates
	}
	kind := "fake: {"
	if a.on != nil {
		kind = "kubernetes: {kubeconfig: " + a.on.kubeconfig + ", "
	}
	for _, name := range a.runtimes() {
		text += fmt.Sprintf("---\napiVersion: converge/v1\nkind: Runtime\nname: %s\nlabels: {fleet: %s}\n%spollInterval: %s, steadyPollInterval: %s}\n",
			name, a.name, kind, min(a.steady, 5*time.Second), a.steady)
		if a.applies > 0 {
			text += fmt.Sprintf("maxConcurrentApplies: %d\n", a.applies)
		}
	}
	for _, s := range a.services {
		text += fmt.Sprintf("---\napiVersion: converge/v1\nkind: Service\nname: %s\n", s)
		if a.version != "" {
			text += fmt.Sprintf("initialVersion: %s\n", a.version)
		}
		text += fmt.Sprintf("parameters:\n- {name: greeting, type: string, default: %q}\n", cmp.Or(a.setting, "hello"))
		if a.on != nil {
			text += "kubernetes: {manifests: [deployment.yaml]}\n"
			continue
		}
		text += "custom: {env: {GREETING: \"${{ params.greeting }}\", VERSION: \"${{ version }}\"}}\n"
	}
	return text
}

// runtime is the name of the application's one runtime.
func (a application) runtime() string { return a.name + "-rt" }

// runtimeOf is the name of that of a channel.
func (a application) runtimeOf(channel int) string {
	if len(a.shared) > 0 {
		return a.shared[channel%len(a.shared)]
	}
	return a.runtime()
}

// runtimes are the names of those that it defines.
func (a application) runtimes() []string {
	switch {
	case a.defines:
		return a.shared
	case len(a.shared) > 0:
		return nil
	}
	if a.instances == 0 {
		return []string{a.runtime()}
	}
	names := make([]string, a.instances)
	for n := range names {
		names[n] = fmt.Sprintf("%s-%03d", a.runtime(), n+1)
	}
	return names
}

func channel(n int) string { return fmt.Sprintf("c%d", n) }

func serviceNames(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("s%04d", i)
	}
	return out
}
