package importer

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

// Cluster is a cluster of Amazon ECS, and the role that reads it; without a role the process reads it with its own credentials.
type Cluster struct{ Name, Region, Role string }

// FromECS writes a configuration of the services that run on a cluster. The import registers no task definition and starts no
// deployment.
func FromECS(ctx context.Context, to Target, from Cluster) (Result, error) {
	if entries, err := os.ReadDir(to.Dir); err == nil && len(entries) > 0 {
		return Result{}, fmt.Errorf("init %s: %s exists already; nothing written", to.Dir, filepath.Join(to.Dir, entries[0].Name()))
	}
	accounts := &ecsruntime.Accounts{}
	defer accounts.Close()
	runtime, err := ecsruntime.New(entities.RuntimeDefinition{
		Name: from.Name, Kind: entities.RuntimeECS, ECS: &entities.ECSRuntime{Cluster: from.Name, Region: from.Region, RoleARN: from.Role},
	}, accounts)
	if err != nil {
		return Result{}, err
	}
	found, err := runtime.Discover(ctx)
	if err != nil {
		return Result{}, fmt.Errorf("list the services of the cluster %s: %w", from.Name, err)
	}
	written := &writtenECS{dir: to.Dir, names: map[string]string{}}
	written.head(to, from)
	for _, f := range found {
		if err := written.service(f); err != nil {
			return Result{}, err
		}
	}
	if len(written.names) == 0 {
		written.omitted = append(written.omitted, "there is no service to import on the cluster "+from.Name)
		return Result{}, errors.New(strings.Join(written.omitted, "; "))
	}
	for _, line := range written.omitted {
		fmt.Fprintf(&written.yaml, "# Omitted: %s\n", entities.Visible(line))
	}
	if err := os.WriteFile(filepath.Join(to.Dir, "converge.yaml"), written.yaml.Bytes(), 0o644); err != nil {
		return Result{}, err
	}
	return Result{Found: len(found), Services: len(written.names), Channels: 1, Omitted: written.omitted}, nil
}

// writtenECS is a configuration under construction.
type writtenECS struct {
	dir     string
	yaml    bytes.Buffer
	names   map[string]string // of services, by their names in ECS
	omitted []string          // omitted settings, and why
}

func (w *writtenECS) head(to Target, from Cluster) {
	role, access := "", ""
	if to.ReadOnly {
		access = "access: read\n"
	}
	if from.Role != "" {
		role = fmt.Sprintf(", roleArn: %q", from.Role)
	}
	fmt.Fprintf(&w.yaml, `# Imported from the cluster %s. Each service is adopted unchanged: nothing is registered and nothing
# is rolled until a version is released or this configuration changes.
apiVersion: converge/v1
kind: Application
name: %s
releaseChannels:
- {name: live, runtimes: [{name: %s}]}
---
apiVersion: converge/v1
kind: Runtime
name: %[3]s
%[7]secs: {cluster: %[4]q, region: %[5]q%[6]s}
`, from.Name, to.Application, to.Application+"-ecs", from.Name, from.Region, role, access)
}

// service writes a service, and its two documents into its own folder.
func (w *writtenECS) service(f ecsruntime.DiscoveredService) error {
	name := NameOf(f.Name)
	switch {
	case f.Controller != types.DeploymentControllerTypeEcs:
		w.omitted = append(w.omitted, fmt.Sprintf("%s is rolled by the deployment controller %s", f.Name, f.Controller))
		return nil
	case f.Owner != "":
		w.omitted = append(w.omitted, fmt.Sprintf("%s already belongs to %s", f.Name, f.Owner))
		return nil
	case !isName(name) || w.names[name] != "":
		w.omitted = append(w.omitted, fmt.Sprintf("%s is not a valid service name, or the name of another service", f.Name))
		return nil
	case f.Definition == nil:
		w.omitted = append(w.omitted, f.Name+" has no task definition")
		return nil
	}
	for _, document := range []map[string]any{f.Definition, f.Service} {
		data, err := json.Marshal(document)
		if err != nil {
			return err
		}
		if bytes.Contains(data, []byte("${{")) {
			w.omitted = append(w.omitted, f.Name+" has a value that contains ${{, which would be interpolated")
			return nil
		}
	}
	version := extractVersion(f.Definition)
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
	return os.WriteFile(filepath.Join(w.dir, name, file), text.Bytes(), 0o600) // it may contain private values
}

// extractVersion makes the tag of the first image the version, and returns its current value. It leaves an image without a tag, or with a
// digest, unchanged.
func extractVersion(definition map[string]any) string {
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
