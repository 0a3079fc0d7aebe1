package secret_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes/secret"
)

// kept is a store of secrets in memory; asked counts.
type kept struct {
	asked int
	err   error
	value string
}

func (k *kept) Fetch(context.Context, entities.Value) ([]byte, error) {
	k.asked++
	return []byte(k.value), k.err
}

func inCluster(namespace, name, in string) entities.Value {
	return entities.Value{KubernetesSecret: name, Namespace: namespace, Context: in, Key: "password"}
}

func inAWS(name, region string) entities.Value {
	return entities.Value{AWSSecret: name, Region: region}
}

// Of what a worker can read elsewhere a configuration has only what whoever started the worker named: that namespace, that
// cluster, that region, and nothing that looks alike.
func TestOnlyWhatIsAllowedIsReadElsewhere_G5(t *testing.T) {
	for _, row := range []struct {
		allowed string
		ref     entities.Value
		ok      bool
	}{
		{"", inCluster("shop", "db", ""), false},
		{"kubernetes:shop/db", inCluster("shop", "db", ""), true},
		{"kubernetes:shop/db", inCluster("shop", "db-admin", ""), false},
		{"kubernetes:shop/*", inCluster("shop", "db", ""), true},
		{"kubernetes:shop/*", inCluster("shop2", "db", ""), false},
		{"kubernetes:shop/*", inCluster("kube-system", "db", "shop"), false},
		{"kubernetes:shop/*", inCluster("shop/x", "db", ""), false},
		{"kubernetes:prod/shop/*", inCluster("shop", "db", "prod"), true},
		{"kubernetes:prod/shop/*", inCluster("shop", "db", ""), false},
		{"kubernetes:prod/shop/*", inCluster("prod/shop", "db", ""), false},
		{"kubernetes:arn:aws:eks:eu-1:1:cluster/prod/shop/*", inCluster("shop", "db", "arn:aws:eks:eu-1:1:cluster/prod"), true},
		{"aws:shop/*", inAWS("shop/db", ""), true},
		{"aws:shop/*", inAWS("shop/db", "eu-west-1"), false},
		{"aws:shop/*", inAWS("admin/db", ""), false},
		{"aws:eu-west-1:shop/*", inAWS("shop/db", "eu-west-1"), true},
		{"aws:eu-west-1:shop/*", inAWS("shop/db", "us-east-1"), false},
		{"aws:*", inAWS("arn:aws:secretsmanager:eu-west-1:1:secret:shop", ""), false},
		{"aws:arn:aws:secretsmanager:eu-west-1:1:secret:shop*", inAWS("arn:aws:secretsmanager:eu-west-1:1:secret:shop-a1", ""), true},
		{"kubernetes:shop/*", inAWS("shop/db", ""), false},
	} {
		allowed, err := secret.ParseElsewhere(row.allowed)
		require.NoError(t, err, row)
		w := &secret.Worker{Elsewhere: allowed, Kubernetes: &kept{value: "hunter2"}, AWS: &kept{value: "hunter2"}}
		text, err := secret.Resolve(t.Context(), w, "TOKEN", row.ref)
		if row.ok {
			require.NoError(t, err, row)
			require.Equal(t, "hunter2", text)
			continue
		}
		require.ErrorContains(t, err, "TOKEN cannot be resolved from "+row.ref.Reference(), row)
		require.NotContains(t, err.Error(), "hunter2")
	}
	for _, wrong := range []string{"shop/db", "kubernetes:db", "kubernetes:", "kubernetes:*", "kubernetes:/db", "aws:", "aws:a*b", "vault:x"} {
		_, err := secret.ParseElsewhere(wrong)
		require.Error(t, err, wrong)
	}
	_, err := secret.Resolve(t.Context(), secret.Environment{}, "TOKEN", inAWS("shop/db", ""))
	require.ErrorContains(t, err, "this worker reads only its environment")
}

// A field is taken out of a JSON object; what is wrong is said without it. What was fetched a moment ago is not fetched again.
func TestFieldOfASecret_G5(t *testing.T) {
	all, err := secret.ParseElsewhere("aws:*")
	require.NoError(t, err)
	from := &kept{value: `{"password":"hunter2","port":5432}`}
	w := &secret.Worker{Elsewhere: all, AWS: from}
	resolve := func(key string) (string, error) {
		return w.Resolve(t.Context(), entities.Value{AWSSecret: "db", Key: key})
	}
	for range 2 {
		text, err := resolve("password")
		require.NoError(t, err)
		require.Equal(t, "hunter2", text)
	}
	require.Equal(t, 1, from.asked)
	text, err := resolve("port")
	require.NoError(t, err)
	require.Equal(t, "5432", text)
	_, err = resolve("user")
	require.EqualError(t, err, "{awsSecret: db, key: user}, which has no such key")
	from.value = "hunter2"
	_, err = resolve("other")
	require.EqualError(t, err, "{awsSecret: db, key: other}, which is not a JSON object, so it has no keys")
	from.err = errors.New("does not exist")
	_, err = resolve("gone")
	require.EqualError(t, err, "{awsSecret: db, key: gone}, which does not exist")
}
