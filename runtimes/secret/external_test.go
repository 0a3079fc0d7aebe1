package secret_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes/secret"
)

// fixedStore is a store of secrets in memory; asked counts.
type fixedStore struct {
	asked int
	err   error
	value string
}

func (k *fixedStore) Fetch(context.Context, entities.Value) ([]byte, error) {
	k.asked++
	return []byte(k.value), k.err
}

func clusterSecret(namespace, name, in string) entities.Value {
	return entities.Value{KubernetesSecret: name, Namespace: namespace, Context: in, Key: "password"}
}

func awsSecret(name, region string) entities.Value {
	return entities.Value{AWSSecret: name, Region: region}
}

// Of the external secrets that a worker can read, a configuration gets only those that the worker's operator allowed: that namespace,
// that cluster, that region, and none with a similar name.
func TestOnlyAllowedExternalSecretsAreRead_G5(t *testing.T) {
	for _, row := range []struct {
		allowed string
		ref     entities.Value
		ok      bool
	}{
		{"", clusterSecret("shop", "db", ""), false},
		{"kubernetes:shop/db", clusterSecret("shop", "db", ""), true},
		{"kubernetes:shop/db", clusterSecret("shop", "db-admin", ""), false},
		{"kubernetes:shop/*", clusterSecret("shop", "db", ""), true},
		{"kubernetes:shop/*", clusterSecret("shop2", "db", ""), false},
		{"kubernetes:shop/*", clusterSecret("kube-system", "db", "shop"), false},
		{"kubernetes:shop/*", clusterSecret("shop/x", "db", ""), false},
		{"kubernetes:prod/shop/*", clusterSecret("shop", "db", "prod"), true},
		{"kubernetes:prod/shop/*", clusterSecret("shop", "db", ""), false},
		{"kubernetes:prod/shop/*", clusterSecret("prod/shop", "db", ""), false},
		{"kubernetes:arn:aws:eks:eu-1:1:cluster/prod/shop/*", clusterSecret("shop", "db", "arn:aws:eks:eu-1:1:cluster/prod"), true},
		{"aws:shop/*", awsSecret("shop/db", ""), true},
		{"aws:shop/*", awsSecret("shop/db", "eu-west-1"), false},
		{"aws:shop/*", awsSecret("admin/db", ""), false},
		{"aws:eu-west-1:shop/*", awsSecret("shop/db", "eu-west-1"), true},
		{"aws:eu-west-1:shop/*", awsSecret("shop/db", "us-east-1"), false},
		{"aws:*", awsSecret("arn:aws:secretsmanager:eu-west-1:1:secret:shop", ""), false},
		{"aws:arn:aws:secretsmanager:eu-west-1:1:secret:shop*", awsSecret("arn:aws:secretsmanager:eu-west-1:1:secret:shop-a1", ""), true},
		{"kubernetes:shop/*", awsSecret("shop/db", ""), false},
	} {
		allowed, err := secret.ParseExternal(row.allowed)
		require.NoError(t, err, row)
		w := &secret.Worker{External: allowed, Kubernetes: &fixedStore{value: "hunter2"}, AWS: &fixedStore{value: "hunter2"}}
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
		_, err := secret.ParseExternal(wrong)
		require.Error(t, err, wrong)
	}
	_, err := secret.Resolve(t.Context(), secret.Environment{}, "TOKEN", awsSecret("shop/db", ""))
	require.ErrorContains(t, err, "this worker reads only its environment")
}

// A field is read from a JSON object; errors do not quote it. A value that was just fetched is not fetched again.
func TestFieldOfASecret_G5(t *testing.T) {
	all, err := secret.ParseExternal("aws:*")
	require.NoError(t, err)
	from := &fixedStore{value: `{"password":"hunter2","port":5432}`}
	w := &secret.Worker{External: all, AWS: from}
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
