package compile

import (
	"fmt"
	"net/url"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/bundle"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/intent/internal/strict"
	"github.com/converge-engine/converge/intent/internal/substitute"
	"github.com/converge-engine/converge/intent/sources"
)

// ecsDraft is the merged task definition and ECS service of a service in one channel.
type ecsDraft struct {
	at                  string // path of the last layer that set it
	definition, service string // paths of the two, or empty
	prune, adopt        bool
}

// tasks merges one layer. Each document replaces the previous one.
func (d *draft) tasks(at string, e *config.ServiceECS) {
	if e == nil {
		return
	}
	if d.ecs == nil {
		d.ecs = &ecsDraft{}
	}
	d.ecs.at = at
	if e.TaskDefinition != nil {
		d.ecs.definition = at + ".taskDefinition"
	}
	if e.Service != nil {
		d.ecs.service = at + ".service"
	}
	if e.Prune != nil {
		d.ecs.prune = *e.Prune
	}
	if e.Adopt != nil {
		d.ecs.adopt = *e.Adopt
	}
}

// ecsKindMismatch returns why a service does not fit a runtime if only one of the two uses ECS, or nil.
func (d *draft) ecsKindMismatch(kind entities.RuntimeKind) *located[strict.Fault] {
	mismatch := func(at, message, expected string) *located[strict.Fault] {
		return &located[strict.Fault]{strict.Fault{Code: "wrong-kind", Message: message, Expected: expected}, at}
	}
	switch {
	case kind == entities.RuntimeFake:
		return nil
	case kind != entities.RuntimeECS:
		return mismatch(d.ecs.at, "does not accept a task definition", fmt.Sprintf("%q instead of \"ecs\", or a runtime of kind ecs", string(kind)))
	case d.customAt != "":
		return mismatch(d.customAt, "does not run commands", `"ecs" instead of "custom"`)
	case d.kubernetes != nil:
		return mismatch(d.kubernetes.at, "does not accept objects", `"ecs" instead of "kubernetes"`)
	case d.ecs == nil:
		return &located[strict.Fault]{strict.Fault{
			Code: "missing-field", Message: "gets nothing to deploy", Expected: `"ecs" with a task definition and a service`,
		}, "ecs"}
	}
	return nil
}

// defineECS checks an ECS cluster.
func (c *compiler) defineECS(doc *config.Document[config.Runtime], e *config.RuntimeECS, definition *entities.RuntimeDefinition) {
	definition.Timing = c.timing(doc, "ecs", e.Pace)
	definition.Timing.ApplyTimeout = c.atLeast(doc.Decoder, "ecs.applyTimeout", e.ApplyTimeout, span{defaultApplyTimeout, time.Second})
	definition.ECS = ecsEntity(e.ECSCluster)
	c.ecsCluster(doc.Decoder, "ecs", "a runtime", e.ECSCluster)
}

// ecsCluster checks the reference to the cluster.
func (c *compiler) ecsCluster(d *strict.Decoder, at, where string, e config.ECSCluster) {
	for field, text := range map[string]string{"cluster": e.Cluster, "externalId": e.ExternalID, "endpoint": e.Endpoint} {
		c.noSubstitution(d, strict.Field(at, field), where, text)
	}
	if cluster := strict.Field(at, "cluster"); e.Cluster == "" && d.Has(cluster) && !d.Faulty(cluster) {
		c.report(d, cluster, strict.Fault{Code: "missing-field", Message: "no cluster is named", Expected: "its name or its ARN"})
	}
	if to, err := url.Parse(e.Endpoint); e.Endpoint != "" && (err != nil || to.Host == "" || to.Scheme != "https" && to.Scheme != "http") {
		c.report(d, strict.Field(at, "endpoint"), strict.Fault{Code: "bad-value", Message: fmt.Sprintf("invalid address %q", strict.Clip(e.Endpoint)), Expected: "such as https://ecs.eu-west-1.amazonaws.com"})
	}
}

func ecsEntity(e config.ECSCluster) *entities.ECSRuntime {
	return &entities.ECSRuntime{
		Cluster: e.Cluster, Region: string(e.Region), RoleARN: string(e.RoleARN), ExternalID: e.ExternalID, Endpoint: e.Endpoint,
	}
}

// compileTasks checks the task definition and the ECS service in one channel and makes their bundle. Values that a release provides stay
// open.
func (s *serviceCompiler) compileTasks(scope *substitute.Scope, d *ecsDraft, ref runtimeRef) (*incarnation.ECS, incarnation.ObjectList) {
	set := &objectSet{serviceCompiler: s, scope: scope, draft: &kubernetesDraft{at: d.at}, ref: ref}
	var data [][]byte
	list := incarnation.ObjectList{}
	for _, document := range []struct{ field, at string }{{"taskDefinition", d.definition}, {"service", d.service}} {
		if document.at == "" {
			if !s.Faulty(d.at) {
				set.fail(d.at, strict.Fault{Code: "missing-field", Message: fmt.Sprintf("the service has no %q", document.field), Expected: "a mapping, or the path of a file with one"})
			}
			continue
		}
		o := s.inputs.Tasks[sources.TaskKey(s.Document, document.at)]
		if o == nil {
			continue // already reported
		}
		set.objects = append(set.objects, located[*sources.Object]{o, document.at})
		data = append(data, o.Data)
		list[o.ID()] = o.Digest
	}
	doc := &incarnation.ECS{Prune: d.prune, Adopt: d.adopt, Names: set.substitute(`the container's "secrets", which ECS reads from Secrets Manager or SSM`)}
	set.rejectDuplicateTasks()
	made := bundle.New(data)
	s.bundles["ecs "+made.Digest()] = made
	doc.Bundle = made.Digest()
	return doc, list
}

// rejectDuplicateTasks rejects an ECS service that is already declared for the same cluster. Task definitions may share a family, because
// their revisions identify them.
func (b *objectSet) rejectDuplicateTasks() {
	for _, o := range b.objects {
		if name, t := b.scope.Text(o.v.Name); t == nil && o.v.Kind == "Service" {
			b.recordOwner(objectKey{b.ref.name, sources.GroupECS, o.v.Kind, "", name}, o)
		}
	}
}
