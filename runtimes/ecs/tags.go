package ecs

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/ecs/types"

	"github.com/converge-engine/converge/runtimes"
)

// The tags that identify our services and task definitions. AWS allows letters, digits, spaces and + - = . _ : / @.
const (
	// TagOwner is the owner: application/service/release channel/instance.
	TagOwner = "converge:owner"
	// TagVersion is the version for which it was created or last changed.
	TagVersion = "converge:version"
	// TagDefinition is the SHA-256 of the document from which a task definition was registered.
	TagDefinition = "converge:definition"
	// TagAdopted is on a task definition that another owner registered.
	TagAdopted = "converge:adopted"
	// TagService is the SHA-256 of the declaration of a service.
	TagService = "converge:service"
	// TagTask is the purpose of a command that runs as its own task.
	TagTask = "converge:task"
	// TagFormerServices names further services of the instance, with names that are no longer declared.
	TagFormerServices = "converge:left"
	// TagFence is the fence of the last target of the instance: installation, epoch, sequence, target.
	TagFence = "converge:fence"
)

func tag(key, value string) types.Tag { return types.Tag{Key: &key, Value: &value} }

func valueOf(tags []types.Tag, key string) string {
	for _, t := range tags {
		if text(t.Key) == key {
			return text(t.Value)
		}
	}
	return ""
}

// A version may contain a tilde, which a tag must not.
func encodeVersion(version string) string { return strings.ReplaceAll(version, "~", "/7E") }
func decodeVersion(value string) string   { return strings.ReplaceAll(value, "/7E", "~") }

func encodeFence(f runtimes.Fence) string {
	return fmt.Sprintf("%s %d %d %s", f.Installation, f.Epoch, f.Sequence, f.Target)
}

// fenceOf reads the fence of a service. It is nil if there is none, or if it is unreadable: it is then older than any fence.
func fenceOf(tags []types.Tag) *runtimes.Fence {
	parts := strings.Split(valueOf(tags, TagFence), " ")
	const fields = 4
	if len(parts) != fields {
		return nil
	}
	epoch, err := strconv.ParseInt(parts[1], 10, 64)
	sequence, err2 := strconv.ParseInt(parts[2], 10, 64)
	if err != nil || err2 != nil {
		return nil
	}
	return &runtimes.Fence{Installation: parts[0], Epoch: epoch, Sequence: sequence, Target: parts[3], FullVersion: decodeVersion(valueOf(tags, TagVersion))}
}

// missingTags are the wanted tags that are missing or have another value.
func missingTags(wanted, actual []types.Tag) []types.Tag {
	var missing []types.Tag
	for _, t := range wanted {
		if valueOf(actual, text(t.Key)) != text(t.Value) {
			missing = append(missing, t)
		}
	}
	return missing
}
