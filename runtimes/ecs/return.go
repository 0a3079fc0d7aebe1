package ecs

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"

	"github.com/converge-engine/converge/runtimes"
)

var _ runtimes.Returner = (*Runtime)(nil)

// Return implements runtimes.Returner: it removes our tags from the service, and then from the revisions that it runs. Nothing is deployed.
func (r *Runtime) Return(ctx context.Context, in runtimes.Request) ([]string, error) {
	action := "return " + in.Owner.String()
	if in.Payload == nil {
		return nil, ctx.Err()
	}
	want, err := declare(in.Payload)
	if err != nil {
		return nil, err
	}
	service, err := r.cluster.read(ctx, in.Owner, want.name(), time.Now())
	if err != nil {
		return nil, readingError(action, err)
	}
	if service == nil || valueOf(service.Tags, TagOwner) != in.Owner.Key() {
		return []string{"no service of ours to give up"}, nil
	}
	for _, arn := range definitionsOf(service) {
		known, err := r.cluster.describeRevision(ctx, arn)
		if err != nil {
			return nil, readingError(action, err)
		}
		if known.owner != in.Owner.Key() {
			continue
		}
		if err := r.untag(ctx, arn, []string{TagOwner, TagVersion, TagDefinition, TagAdopted}); err != nil {
			return nil, readingError(action, err)
		}
		r.cluster.account.forget(arn)
	}
	// The service is last: as long as it has our tags, a repetition finds what is left.
	if err := r.untag(ctx, text(service.ServiceArn), ourTags(service.Tags)); err != nil {
		return nil, readingError(action, err)
	}
	freed := *service
	freed.Tags = slices.DeleteFunc(slices.Clone(service.Tags), isOurs)
	r.cluster.recordWrite(want.name(), service, &freed)
	return []string{"the service " + want.name() + " given up"}, nil
}

func (r *Runtime) untag(ctx context.Context, arn string, keys []string) error {
	client, err := r.cluster.account.client(ctx)
	if err != nil {
		return err
	}
	_, err = call(ctx, r.cluster, tagWrites, client.UntagResource, &ecs.UntagResourceInput{ResourceArn: &arn, TagKeys: keys})
	return err
}

func isOurs(t types.Tag) bool { return strings.HasPrefix(text(t.Key), "converge:") }

func ourTags(tags []types.Tag) (keys []string) {
	for _, t := range tags {
		if isOurs(t) {
			keys = append(keys, text(t.Key))
		}
	}
	return keys
}
