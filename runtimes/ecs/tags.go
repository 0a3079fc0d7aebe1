package ecs

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/ecs/types"

	"github.com/converge-engine/converge/runtimes"
)

// The tags by which services and task definitions are known to be ours. AWS allows letters, digits, spaces and + - = . _ : / @.
const (
	// TagOwner is whose it is: application/service/release channel/instance.
	TagOwner = "converge:owner"
	// TagVersion is the version that it was made for, or last became.
	TagVersion = "converge:version"
	// TagDefinition is the SHA-256 of what a task definition was registered from.
	TagDefinition = "converge:definition"
	// TagAdopted is on a task definition that somebody else registered.
	TagAdopted = "converge:adopted"
	// TagService is the SHA-256 of what a service was declared as.
	TagService = "converge:service"
	// TagTask is what a command is for that runs as a task of its own.
	TagTask = "converge:task"
	// TagLeft names services that the instance has besides, by names that are not declared any more.
	TagLeft = "converge:left"
	// TagFence is the place of the last target among all of the instance: installation, epoch, sequence, target.
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

// A version may hold a tilde, which a tag may not.
func encodeVersion(version string) string { return strings.ReplaceAll(version, "~", "/7E") }
func decodeVersion(value string) string   { return strings.ReplaceAll(value, "/7E", "~") }

func encodeFence(f runtimes.Fence) string {
	return fmt.Sprintf("%s %d %d %s", f.Installation, f.Epoch, f.Sequence, f.Target)
}

// fenceOf reads the fence of a service; nil when it has none, or one that nobody can read: it is older than anything then.
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

// lacking are the wanted tags that are not there, or say something else.
func lacking(wanted, there []types.Tag) []types.Tag {
	var missing []types.Tag
	for _, t := range wanted {
		if valueOf(there, text(t.Key)) != text(t.Value) {
			missing = append(missing, t)
		}
	}
	return missing
}
