package ecs

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/aws/aws-sdk-go-v2/service/ecs"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// declared is the target state in a payload.
type declared struct {
	definition *ecs.RegisterTaskDefinitionInput
	service    *ecs.CreateServiceInput
	// The same as documents, and the SHA-256 of each.
	definitionFields, serviceFields map[string]any
	hash, serviceHash               string
	adopt, prune                    bool
}

// declare reads a payload. Its errors are permanent.
func declare(p *entities.Payload) (*declared, error) {
	if p.ECS == nil {
		return nil, runtimes.Permanent(errors.New("the payload holds no task definition and no service"))
	}
	const parts = 2 // the task definition, and the service
	if len(p.ECS.Objects) != parts {
		return nil, runtimes.Permanent(fmt.Errorf("the payload holds %d objects; expected a task definition and a service", len(p.ECS.Objects)))
	}
	d := &declared{definition: &ecs.RegisterTaskDefinitionInput{}, service: &ecs.CreateServiceInput{}, adopt: p.ECS.Adopt, prune: p.ECS.Prune}
	var err error
	if d.definitionFields, err = decode(p.ECS.Objects[0], d.definition); err != nil {
		return nil, runtimes.Permanent(fmt.Errorf("task definition: %w", err))
	}
	if d.serviceFields, err = decode(p.ECS.Objects[1], d.service); err != nil {
		return nil, runtimes.Permanent(fmt.Errorf("service: %w", err))
	}
	if d.name() == "" || d.family() == "" {
		return nil, runtimes.Permanent(errors.New("the service has no serviceName, or the task definition no family"))
	}
	if c := d.service.DeploymentController; c != nil && c.Type != "" && c.Type != "ECS" {
		return nil, runtimes.Permanent(fmt.Errorf("the service has the deployment controller %s; expected ECS or none", c.Type))
	}
	d.hash, d.serviceHash = hashOf(d.definitionFields), hashOf(d.serviceFields)
	return d, nil
}

func (d *declared) name() string   { return text(d.service.ServiceName) }
func (d *declared) family() string { return text(d.definition.Family) }

// hashOf is the SHA-256 of a document, whose keys JSON sorts.
func hashOf(document map[string]any) string {
	data, _ := json.Marshal(document) // never fails for a decoded document
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// unreadableFields are fields of a service that DescribeServices does not return: only our tag shows whether they are as declared.
var unreadableFields = []string{"monitoring", "gatewayConnectors"}

// compared are the declared fields of a service that can be compared with the live service.
func (d *declared) compared() map[string]any {
	fields := maps.Clone(d.serviceFields)
	for _, name := range append([]string{"serviceName", "tags", "role", "deploymentController"}, unreadableFields...) {
		delete(fields, name)
	}
	return fields
}

// hasUnreadableFields reports whether there is a field that only our tag shows.
func (d *declared) hasUnreadableFields() bool {
	for _, name := range unreadableFields {
		if d.serviceFields[name] != nil {
			return true
		}
	}
	return false
}

func text(p *string) string {
	if p == nil {
		return ""
	}
	return *p
}
