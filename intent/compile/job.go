package compile

import (
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// jobPoll is the default time between looks while something moves, where a look is a Job: it takes
// seconds, and a handful of objects in the cluster.
const jobPoll = "30s"

var (
	dnsLabelRE     = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	dnsSubdomainRE = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)
	imageRE        = regexp.MustCompile(`^[^\s]+$`)
)

// paceOf is how often the runtime is asked.
func paceOf(r config.RuntimeCustom) config.Pace {
	pace := r.Pace
	if r.Job != nil && pace.PollInterval == "" {
		pace.PollInterval = jobPoll
	}
	return pace
}

// commandJob checks where commands run as Jobs.
func (c *compiler) commandJob(d *strict.Decoder, at string, job *config.CommandJob) *entities.CommandJob {
	if job == nil {
		return nil
	}
	where := "a runtime"
	if at != "custom.job" {
		where = "the settings of a Job"
	}
	for _, field := range []struct {
		name, value string
		fits        bool
		wanted      string
	}{
		{"kubeconfig", job.Kubeconfig, true, ""},
		{"context", job.Context, true, ""},
		{"namespace", job.Namespace, dnsLabelRE.MatchString(job.Namespace), "small letters, digits and dashes, at most 63"},
		{"image", job.Image, imageRE.MatchString(job.Image), "an image's name, such as registry.shop.dev/edge:3"},
		{"serviceAccount", job.ServiceAccount, dnsSubdomainRE.MatchString(job.ServiceAccount), "a service account's name"},
		{"wrapper", job.Wrapper, path.IsAbs(job.Wrapper) && !strings.HasSuffix(job.Wrapper, "/"), "an absolute path in the image, such as /converge-wrapper"},
	} {
		place := strict.Field(at, field.name)
		if !d.Has(place) || d.Faulty(place) {
			continue
		}
		if config.HasSubstitution(field.value) {
			c.noSubstitution(d, place, where, field.value)
		} else if !field.fits {
			c.report(d, place, strict.Fault{Code: "bad-value", Message: fmt.Sprintf("%q is not possible here", field.value), Expected: field.wanted})
		}
	}
	return jobEntity(job)
}

func jobEntity(job *config.CommandJob) *entities.CommandJob {
	return &entities.CommandJob{
		Cluster:   entities.KubernetesRuntime{Kubeconfig: job.Kubeconfig, Context: job.Context},
		Namespace: job.Namespace, Image: job.Image, ServiceAccount: job.ServiceAccount, Wrapper: job.Wrapper,
	}
}
