package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/ecs/types"

	"github.com/converge-engine/converge/entities"
	ecsruntime "github.com/converge-engine/converge/runtimes/ecs"
)

// fromECS writes a configuration of what runs on a cluster. Taking it over registers and rolls nothing.
func (o *initOptions) fromECS(ctx context.Context) error {
	name, err := o.applicationName()
	if err != nil {
		return err
	}
	if o.region == "" {
		return errors.New("--region says where the cluster is")
	}
	if entries, err := os.ReadDir(o.dir); err == nil && len(entries) > 0 {
		return fmt.Errorf("init %s: %s exists already; nothing written", o.dir, filepath.Join(o.dir, entries[0].Name()))
	}
	accounts := &ecsruntime.Accounts{}
	defer accounts.Close()
	runtime, err := ecsruntime.New(entities.RuntimeDefinition{
		Name: o.cluster, Kind: entities.RuntimeECS, ECS: &entities.ECSRuntime{Cluster: o.cluster, Region: o.region, RoleARN: o.role},
	}, accounts)
	if err != nil {
		return err
	}
	found, err := runtime.Discover(ctx)
	if err != nil {
		return fmt.Errorf("services of the cluster %s: %w", o.cluster, err)
	}
	written := &writtenECS{dir: o.dir, names: map[string]string{}}
	written.head(name, o)
	for _, f := range found {
		if err := written.service(f); err != nil {
			return err
		}
	}
	if len(written.names) == 0 {
		written.left = append(written.left, "there is no service to write on the cluster "+o.cluster)
		return errors.New(strings.Join(written.left, "; "))
	}
	for _, line := range written.left {
		fmt.Fprintf(&written.yaml, "# Left out: %s\n", entities.Visible(line))
	}
	if err := os.WriteFile(filepath.Join(o.dir, "converge.yaml"), written.yaml.Bytes(), 0o644); err != nil {
		return err
	}
	for _, line := range written.left {
		o.f.note("left out: %s", line)
	}
	return o.f.screen().Lines(
		fmt.Sprintf("application %s in %s, with %d of the cluster's %d services", name, o.dir, len(written.names), len(found)),
		"next: converge validate "+o.dir+", then converge apply "+o.dir+"; what runs is taken over as it is")
}

// writtenECS is a configuration in the making.
type writtenECS struct {
	dir   string
	yaml  bytes.Buffer
	names map[string]string // of services, and what ECS calls them
	left  []string          // what is left out, and why
}

func (w *writtenECS) head(application string, o *initOptions) {
	role := ""
	if o.role != "" {
		role = fmt.Sprintf(", roleArn: %q", o.role)
	}
	fmt.Fprintf(&w.yaml, `# What runs on the cluster %s. Each service is taken over as it is: nothing is registered and nothing
# rolled until a version is released, or something here is changed.
apiVersion: converge/v1
kind: Application
name: %s
releaseChannels:
- {name: live, runtimes: [{name: %s}]}
---
apiVersion: converge/v1
kind: Runtime
name: %[3]s
ecs: {cluster: %[4]q, region: %[5]q%[6]s}
`, o.cluster, application, application+"-ecs", o.cluster, o.region, role)
}

// service writes a service, and its two documents into a folder of its own.
func (w *writtenECS) service(f ecsruntime.Found) error {
	name := strings.Trim(notInNames.ReplaceAllString(strings.ToLower(f.Name), "-"), "-0123456789")
	switch {
	case f.Controller != types.DeploymentControllerTypeEcs:
		w.left = append(w.left, fmt.Sprintf("%s is rolled by the deployment controller %s", f.Name, f.Controller))
		return nil
	case f.Owner != "":
		w.left = append(w.left, fmt.Sprintf("%s belongs to %s already", f.Name, f.Owner))
		return nil
	case !isName(name) || w.names[name] != "":
		w.left = append(w.left, fmt.Sprintf("%s has a name that no service can have here, or that another one has", f.Name))
		return nil
	case f.Definition == nil:
		w.left = append(w.left, f.Name+" has no task definition")
		return nil
	}
	for _, document := range []map[string]any{f.Definition, f.Service} {
		data, err := json.Marshal(document)
		if err != nil {
			return err
		}
		if bytes.Contains(data, []byte("${{")) {
			w.left = append(w.left, f.Name+" has a value with ${{ in it, which would be filled in")
			return nil
		}
	}
	version := versioned(f.Definition)
	w.names[name] = f.Name
	fmt.Fprintf(&w.yaml, "---\napiVersion: converge/v1\nkind: Service\nname: %s\ninitialVersion: %q\necs: {taskDefinition: %[1]s/task-definition.json, service: %[1]s/service.json, adopt: true}\n", name, version)
	if err := os.MkdirAll(filepath.Join(w.dir, name), 0o755); err != nil {
		return err
	}
	return errors.Join(w.document(name, "task-definition.json", f.Definition), w.document(name, "service.json", f.Service))
}

func (w *writtenECS) document(name, file string, document map[string]any) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(document); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(w.dir, name, file), text.Bytes(), 0o600) // there may be values in it that are nobody's business
}

// versioned has the tag of the first image be the version, and returns what it is now. An image that has none, or is named by its
// digest, is left as it is.
func versioned(definition map[string]any) string {
	containers, _ := definition["containerDefinitions"].([]any)
	for _, c := range containers {
		container, _ := c.(map[string]any)
		image, _ := container["image"].(string)
		slash, colon := strings.LastIndex(image, "/"), strings.LastIndex(image, ":")
		if colon > slash && !strings.Contains(image, "@") {
			container["image"] = image[:colon+1] + "${{ version }}"
			return image[colon+1:]
		}
	}
	return "adopted"
}
