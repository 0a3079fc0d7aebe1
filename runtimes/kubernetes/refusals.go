package kubernetes

import (
	"fmt"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// This file reads why pods, and other objects, are not let into a namespace: by the answer to an apply, or by what a controller says
// that was refused. A server has only Forbidden for all of that, which is no matter of rights.

// keptOut is one way of being kept out: what its words are, and what to change. Names in advice are the groups of the words.
type keptOut struct {
	words  *regexp.Regexp
	advice string // a format of the groups
	lasts  bool   // no waiting mends it
}

var refusals = [...]keptOut{
	{
		words:  regexp.MustCompile(`exceeded quota: ([^,]+), requested: ([^=,]+)`),
		advice: "ResourceQuota %s: raise its spec.hard[%s], or ask for less in resources, or fewer replicas",
	},
	{
		words:  regexp.MustCompile(`failed quota: ([^:]+): must specify (.+)`),
		advice: "ResourceQuota %s counts it: set resources of the containers that are named (%s), or a default in a LimitRange", lasts: true,
	},
	{
		words:  regexp.MustCompile(`violates PodSecurity "([^"]+)"`),
		advice: "Pod Security %s of the namespace: set what is named in the securityContext of pod and containers, or change the namespace's label pod-security.kubernetes.io/enforce", lasts: true,
	},
	{
		words:  regexp.MustCompile(`(maximum|minimum) (\S+) usage per (\w+) is`),
		advice: "LimitRange of the namespace: its %s for %s of a %s; change resources, or spec.limits of the LimitRange", lasts: true,
	},
	{
		words:  regexp.MustCompile(`(\S+) max limit to request ratio per (\w+) is`),
		advice: "LimitRange of the namespace: bring resources.limits and resources.requests of %s of a %s nearer to each other, or change its maxLimitRequestRatio", lasts: true,
	},
	{
		words:  regexp.MustCompile(`no PriorityClass with name (\S+) was found`),
		advice: "make PriorityClass %s, or change spec.priorityClassName",
	},
	{
		words:  regexp.MustCompile(`serviceaccount "([^"]+)" not found`),
		advice: "make ServiceAccount %s, or change spec.serviceAccountName",
	},
}

// tooManyRequests is what the server's own fairness does.
const tooManyRequests = "API priority and fairness lets no more requests of this user through at present: it is tried again; where that lasts, give the worker a FlowSchema " +
	"with a PriorityLevelConfiguration of its own (kubectl get --raw /debug/api_priority_and_fairness/dump_priority_levels shows which one is full)"

// adviceFor says what to change where words tell of a refusal, and whether no waiting mends it; "" where they do not.
func adviceFor(words string) (advice string, lasts bool) {
	for _, r := range refusals {
		found := r.words.FindStringSubmatch(words)
		if found == nil {
			continue
		}
		groups := make([]any, len(found)-1)
		for n, text := range found[1:] {
			groups[n] = strings.TrimSpace(text)
		}
		return fmt.Sprintf(r.advice, groups...), r.lasts
	}
	return "", false
}

func adviceOf(err error) string {
	advice, _ := adviceFor(err.Error())
	return advice
}

func isKeptOut(err error) bool { return apierrors.IsForbidden(err) && adviceOf(err) != "" }

func isKeptOutForGood(err error) bool {
	_, lasts := adviceFor(err.Error())
	return apierrors.IsForbidden(err) && lasts
}

// advised adds to what a controller says what to change.
func advised(words string) string {
	if advice, _ := adviceFor(words); advice != "" {
		return words + " (" + advice + ")"
	}
	return words
}
