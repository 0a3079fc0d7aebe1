package compile

import (
	"cmp"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// jobPods checks the metadata and the permissions of the pods of a Job.
func (c *compiler) jobPods(d *strict.Decoder, at, where string, job *config.CommandJob) {
	for _, list := range []struct {
		name    string
		entries map[string]string
		fits    func(string) []string
	}{{"labels", job.Labels, validation.IsValidLabelValue}, {"annotations", job.Annotations, func(string) []string { return nil }}} {
		for _, key := range strict.Keys(list.entries) {
			at, value := strict.Key(strict.Field(at, list.name), key), list.entries[key]
			prefix, _, _ := strings.Cut(key, "/")
			switch faults := append(validation.IsQualifiedName(key), list.fits(value)...); {
			case config.HasSubstitution(value):
				c.noSubstitution(d, at, where, value)
			case prefix == "converge":
				c.report(d, at, strict.Fault{Code: "reserved-name", Message: fmt.Sprintf("%q is set by Converge itself", key), Expected: "another name"})
			case len(faults) > 0:
				c.report(d, at, strict.Fault{
					Code: "bad-value", Message: fmt.Sprintf("%q is not possible here", strict.Clip(key+": "+value)), Expected: "names and values of Kubernetes labels",
				})
			}
		}
	}
	for i, name := range job.ImagePullSecrets {
		if !dnsSubdomainRE().MatchString(name) {
			c.report(d, strict.Index(strict.Field(at, "imagePullSecrets"), i), strict.Fault{
				Code: "bad-value", Message: fmt.Sprintf("%q is not possible here", strict.Clip(name)), Expected: "the name of a Secret in the namespace",
			})
		}
	}
	c.jobUsers(d, at, job)
}

// jobUsers checks user and group ids.
func (c *compiler) jobUsers(d *strict.Decoder, at string, job *config.CommandJob) {
	pod, container := cmp.Or(job.PodSecurityContext, &config.JobPodSecurity{}), cmp.Or(job.SecurityContext, &config.JobSecurity{})
	for _, id := range []struct {
		at string
		n  *int
	}{
		{"podSecurityContext.runAsUser", pod.RunAsUser},
		{"podSecurityContext.runAsGroup", pod.RunAsGroup},
		{"podSecurityContext.fsGroup", pod.FSGroup},
		{"securityContext.runAsUser", container.RunAsUser},
		{"securityContext.runAsGroup", container.RunAsGroup},
	} {
		if id.n != nil && *id.n < 0 {
			c.report(d, strict.Field(at, id.at), strict.Fault{Code: "bad-value", Message: fmt.Sprintf("%d is not possible here", *id.n), Expected: "a whole number, at least 0"})
		}
	}
}

func podSecurity(of *config.JobPodSecurity) *entities.PodSecurity {
	if of == nil {
		return nil
	}
	return &entities.PodSecurity{
		RunAsNonRoot: of.RunAsNonRoot, RunAsUser: int64Ptr(of.RunAsUser), RunAsGroup: int64Ptr(of.RunAsGroup), FSGroup: int64Ptr(of.FSGroup),
		SupplementalGroups: strict.Map(of.SupplementalGroups, func(n int) int64 { return int64(n) }), SeccompProfile: string(of.SeccompProfile),
	}
}

func containerSecurity(of *config.JobSecurity) *entities.ContainerSecurity {
	if of == nil {
		return nil
	}
	capabilities := cmp.Or(of.Capabilities, &config.JobCapabilities{})
	return &entities.ContainerSecurity{
		RunAsNonRoot: of.RunAsNonRoot, RunAsUser: int64Ptr(of.RunAsUser), RunAsGroup: int64Ptr(of.RunAsGroup),
		AllowPrivilegeEscalation: of.AllowPrivilegeEscalation != nil && *of.AllowPrivilegeEscalation,
		ReadOnlyRootFilesystem:   of.ReadOnlyRootFilesystem != nil && *of.ReadOnlyRootFilesystem,
		DropCapabilities:         capabilities.Drop, AddCapabilities: capabilities.Add,
	}
}

func int64Ptr(n *int) *int64 {
	if n == nil {
		return nil
	}
	long := int64(*n)
	return &long
}
