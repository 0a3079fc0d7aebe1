package ecsfake

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
)

// checkTags refuses tags that API Tag does not allow, after the new tags are added to those of the resource.
func checkTags(have, added []types.Tag) error {
	keys := map[string]bool{}
	for _, t := range added {
		key := text(t.Key)
		switch {
		case key == "" || utf8.RuneCountInString(key) > 128:
			return invalid("The tag key must be between 1 and 128 characters.")
		case utf8.RuneCountInString(text(t.Value)) > 256:
			return invalid("The tag value must be at most 256 characters.")
		case strings.HasPrefix(strings.ToLower(key), "aws:"):
			return invalid("Tag keys starting with aws: are reserved.")
		case keys[key]:
			return invalid("Duplicate tag keys found. Please note that Tag keys are case insensitive.")
		}
		keys[key] = true
	}
	if n := len(tagged(have, added)); n > 50 {
		return invalid("Too many tags. Expected at most 50 tags, found %d.", n)
	}
	return nil
}

// tagged merges tags; the added ones win.
func tagged(have, added []types.Tag) []types.Tag {
	out := slices.Clone(have)
	for _, t := range added {
		i := slices.IndexFunc(out, func(o types.Tag) bool { return text(o.Key) == text(t.Key) })
		if i < 0 {
			out = append(out, t)
		} else {
			out[i] = t
		}
	}
	return out
}

// tags finds the tags of a resource by its ARN (API TagResource: task definitions, services, clusters and tasks). The tags of an
// INACTIVE resource can be neither changed nor listed; the wording is not documented.
func (s *Server) tags(arn *string) (*[]types.Tag, func(), error) {
	none := func() {}
	ref := text(arn)
	if !strings.HasPrefix(ref, s.arn("")) {
		return nil, nil, invalid("Invalid resource ARN: %s", ref)
	}
	kind, name, _ := strings.Cut(strings.TrimPrefix(ref, s.arn("")), "/")
	owner, _, _ := strings.Cut(name, "/")
	switch kind {
	case "cluster":
		if c, err := s.cluster(&name); err == nil {
			return &c.tags, none, nil
		}
		return nil, nil, refuse("ClusterNotFoundException", "Cluster not found.")
	case "task-definition":
		if d := s.definition(name); d != nil && d.view.Status == types.TaskDefinitionStatusActive {
			return &d.tags, none, nil
		}
		return nil, nil, invalid("The specified task definition is inactive. Specify an active task definition and try again.")
	case "service":
		if c := s.clusters[owner]; c != nil {
			if v, err := s.service(c, arn); err == nil && v.status == active {
				return &v.tags, func() { s.remember(v) }, nil
			}
		}
		return nil, nil, invalid("The specified service is inactive or missing. Specify an active service and try again.")
	case "task":
		if c := s.clusters[owner]; c != nil {
			if t := s.task(c, ref); t != nil {
				return &t.tags, none, nil
			}
		}
		return nil, nil, invalid("The specified task is missing. Specify an active task and try again.")
	}
	return nil, nil, invalid("Invalid resource ARN: %s", ref)
}

func (s *Server) tagResource(in *ecs.TagResourceInput) (*ecs.TagResourceOutput, error) {
	tags, writing, err := s.tags(in.ResourceArn)
	if err != nil {
		return nil, err
	}
	if err := checkTags(*tags, in.Tags); err != nil {
		return nil, err
	}
	writing()
	*tags = tagged(*tags, in.Tags)
	return &ecs.TagResourceOutput{}, nil
}

func (s *Server) untagResource(in *ecs.UntagResourceInput) (*ecs.UntagResourceOutput, error) {
	tags, writing, err := s.tags(in.ResourceArn)
	if err != nil {
		return nil, err
	}
	writing()
	*tags = slices.DeleteFunc(slices.Clone(*tags), func(t types.Tag) bool { return slices.Contains(in.TagKeys, text(t.Key)) })
	return &ecs.UntagResourceOutput{}, nil
}

func (s *Server) listTagsForResource(in *ecs.ListTagsForResourceInput) (*ecs.ListTagsForResourceOutput, error) {
	tags, _, err := s.tags(in.ResourceArn)
	if err != nil {
		return nil, err
	}
	return &ecs.ListTagsForResourceOutput{Tags: orEmpty(*tags)}, nil
}
