package kubernetes

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/converge-engine/converge/entities"
)

// Admission looks up other objects: the class of a pod, its ServiceAccount, the quota of its namespace. If one of these is in the same
// payload and changes before the refused object, the refusal of the dry run says nothing about the apply. Such an object is tried again
// once the objects that it needs are applied.

// lookup is an object that admission looks up: how its refusal names it.
type lookup struct {
	refusal *regexp.Regexp
	kind    schema.GroupKind
	// name is the name of the needed object, from the refused object and the groups of the refusal; "" means any in its namespace.
	name func(refused *unstructured.Unstructured, groups []string) string
}

func firstGroup(_ *unstructured.Unstructured, groups []string) string { return groups[1] }

func secondGroup(_ *unstructured.Unstructured, groups []string) string { return groups[2] }

func anyName(*unstructured.Unstructured, []string) string { return "" }

func namespaceName(o *unstructured.Unstructured, _ []string) string { return o.GetNamespace() }

func storageClassName(o *unstructured.Unstructured, _ []string) string {
	name, _, _ := unstructured.NestedString(o.Object, "spec", "storageClassName")
	return name
}

var (
	kindQuota = schema.GroupKind{Kind: "ResourceQuota"}
	kindLimit = schema.GroupKind{Kind: "LimitRange"}
	policyRE  = regexp.MustCompile(`ValidatingAdmissionPolicy '([^']+)' with binding '([^']+)'`)
	limitRE   = regexp.MustCompile(`(maximum|minimum) \S+ usage per \w+ is|max limit to request ratio per \w+ is`)
	mustRE    = regexp.MustCompile(`failed quota: ([^:]+): must specify`)
)

var lookups = [...]lookup{
	{regexp.MustCompile(`no PriorityClass with name (\S+) was found`), schema.GroupKind{Group: "scheduling.k8s.io", Kind: "PriorityClass"}, firstGroup},
	{regexp.MustCompile(`serviceaccount "([^"]+)" not found`), schema.GroupKind{Kind: "ServiceAccount"}, firstGroup},
	{regexp.MustCompile(`RuntimeClass "([^"]+)" not found`), schema.GroupKind{Group: "node.k8s.io", Kind: "RuntimeClass"}, firstGroup},
	{regexp.MustCompile(`exceeded quota: ([^,]+), requested`), kindQuota, firstGroup},
	{mustRE, kindQuota, firstGroup},
	{mustRE, kindLimit, anyName},
	{limitRE, kindLimit, anyName},
	{regexp.MustCompile(`violates PodSecurity `), kindNamespace, namespaceName},
	{regexp.MustCompile(`the storageclass that provisions the pvc must support resize`), schema.GroupKind{Group: "storage.k8s.io", Kind: "StorageClass"}, storageClassName},
	{policyRE, schema.GroupKind{Group: "admissionregistration.k8s.io", Kind: "ValidatingAdmissionPolicy"}, firstGroup},
	{policyRE, schema.GroupKind{Group: "admissionregistration.k8s.io", Kind: "ValidatingAdmissionPolicyBinding"}, secondGroup},
}

// needs reports whether a refusal of o may be due to the present state of another object.
func needs(o *unstructured.Unstructured, refusal error, other *trial) bool {
	if ns := other.GetNamespace(); refusal == nil || ns != "" && ns != o.GetNamespace() {
		return false
	}
	if apierrors.IsNotFound(refusal) || isEscalation(refusal) {
		return isRoleOf(o, other.Unstructured)
	}
	return (apierrors.IsForbidden(refusal) || apierrors.IsInvalid(refusal)) && slices.ContainsFunc(lookups[:], func(l lookup) bool {
		groups := l.refusal.FindStringSubmatch(refusal.Error())
		if groups == nil || l.kind != idOf(other.Unstructured).kind {
			return false
		}
		name := l.name(o, groups)
		return name == "" || name == other.GetName()
	})
}

// isEscalation reports whether RBAC refused an object that grants more than its writer has.
func isEscalation(err error) bool {
	return apierrors.IsForbidden(err) && containsAny("is attempting to grant RBAC permissions not currently held")(err)
}

// isRoleOf reports whether an object is the role that a binding refers to. The server resolves it if the worker is no administrator.
func isRoleOf(binding, role *unstructured.Unstructured) bool {
	at := nestedMap(binding.Object, "roleRef")
	kind := idOf(binding).kind
	return (kind.Kind == "RoleBinding" || kind.Kind == "ClusterRoleBinding") && idOf(role).kind.Group == kind.Group &&
		at["kind"] == role.GetKind() && at["name"] == role.GetName()
}

// deferDependents makes the refused objects wait whose refusal may end once an object before them is applied. earlier are the trials of
// objects that are applied before all of them.
func deferDependents(trials, earlier []*trial) {
	for _, t := range trials {
		if t.outcome != refused {
			continue
		}
		for _, other := range slices.Concat(earlier, trials) {
			before := slices.Contains(earlier, other) || compareOrder(other.declared, t.declared) < 0
			if before && other.differs() && needs(t.Unstructured, t.err, other) {
				t.needed = append(t.needed, other)
			}
		}
		if len(t.needed) > 0 {
			t.outcome, t.err = dependent, nil
		}
	}
}

// needsText names the objects that a trial waits for.
func (t *trial) needsText() string {
	names := make([]string, len(t.needed))
	for i, other := range t.needed {
		names[i] = displayName(other.Unstructured)
	}
	return "tried once " + entities.FirstNames(names) + " " + entities.HasOrHave(names) + " changed"
}

// lookupTimeout is how long the server may take until admission knows an object that has changed: it reads a cache, and a quota counts
// first.
const lookupTimeout = 20 * time.Second

// tryDependent tries an object after the objects that it needs were applied, until admission knows them.
func (a *apply) tryDependent(ctx context.Context, t *trial) {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	needed := t.needed
	refusedStill := func() bool {
		return t.outcome == refused && slices.ContainsFunc(needed, func(other *trial) bool { return needs(t.Unstructured, t.err, other) })
	}
	for deadline := time.Now().Add(lookupTimeout); ; {
		*t = *a.try(ctx, t.origin)
		if !refusedStill() || time.Now().After(deadline) {
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// tryMissing tries the objects whose kind or namespace did not exist, once these exist and before anything else changes. So a refusal
// has changed only namespaces and definitions, unless admission looks up other objects of the payload.
func (a *apply) tryMissing(ctx context.Context, trials, rest []*trial) error {
	missing := func(t *trial) bool { return t.outcome == prerequisiteMissing }
	for _, t := range rest {
		if missing(t) {
			*t = *a.tryServed(ctx, t.origin)
		}
	}
	deferDependents(rest, slices.DeleteFunc(slices.Clone(trials), func(t *trial) bool { return slices.Contains(rest, t) }))
	if slices.ContainsFunc(a.hookTrials, missing) {
		a.tryHooks(ctx, trials)
	}
	return a.refusedLate(joinErrors(slices.Concat(rest, a.hookTrials)))
}

// refusedLate adds to a refusal what the apply has changed before it.
func (a *apply) refusedLate(err error) error {
	if err == nil || len(a.log.lines) == 0 {
		return err
	}
	return fmt.Errorf("%w; changed before this refusal: %s", err, entities.FirstNames(a.log.lines))
}
