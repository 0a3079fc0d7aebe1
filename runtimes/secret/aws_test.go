package secret_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes/secret"
	"github.com/converge-engine/converge/tests/mototest"
)

func awsAt(t *testing.T, url string) {
	t.Helper()
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL_SECRETS_MANAGER": url, "AWS_REGION": "eu-west-1", "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
		"AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null", "AWS_MAX_ATTEMPTS": "1",
	} {
		t.Setenv(name, value)
	}
}

// moto starts a server that answers as AWS Secrets Manager does, and creates a secret in it, which then has a newer version.
func moto(t *testing.T) {
	t.Helper()
	awsAt(t, mototest.Start(t))
	settings, err := config.LoadDefaultConfig(t.Context())
	require.NoError(t, err)
	client := secretsmanager.NewFromConfig(settings)
	_, err = client.CreateSecret(t.Context(), &secretsmanager.CreateSecretInput{Name: aws.String("shop/db"), SecretString: aws.String(`{"password":"hunter1"}`)})
	require.NoError(t, err)
	_, err = client.PutSecretValue(t.Context(), &secretsmanager.PutSecretValueInput{SecretId: aws.String("shop/db"), SecretString: aws.String(`{"password":"hunter2"}`)})
	require.NoError(t, err)
}

// A secret of AWS Secrets Manager is read by name and stage.
func TestSecretsManager_G5(t *testing.T) {
	moto(t)
	all, err := secret.ParseExternal("aws:*")
	require.NoError(t, err)
	w := &secret.Worker{External: all, AWS: &secret.SecretsManager{}}
	for want, ref := range map[string]entities.Value{
		"hunter2":                {AWSSecret: "shop/db", Key: "password"},
		"hunter1":                {AWSSecret: "shop/db", Key: "password", VersionStage: "AWSPREVIOUS"},
		`{"password":"hunter2"}`: {AWSSecret: "shop/db"},
	} {
		text, err := w.Resolve(t.Context(), ref)
		require.NoError(t, err)
		require.Equal(t, want, text)
	}
	_, err = w.Resolve(t.Context(), entities.Value{AWSSecret: "shop/none"})
	require.EqualError(t, err, "{awsSecret: shop/none}, which does not exist")
}

// Errors of AWS are reported without the secret, and the request goes to the region of the reference.
func TestSecretsManagerErrors_G5(t *testing.T) {
	asked := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Header.Get("Authorization")
		var in struct{ SecretId string }
		_ = json.NewDecoder(r.Body).Decode(&in)
		w.Header().Set("Content-Type", "application/x-amz-json-1.1")
		if in.SecretId == "denied" {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(`{"__type":"AccessDeniedException","Message":"hunter2 is not for you"}`))
			return
		}
		_, _ = w.Write([]byte(`{"SecretBinary":"aHVudGVyMg=="}`))
	}))
	t.Cleanup(server.Close)
	awsAt(t, server.URL)
	m := &secret.SecretsManager{}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := m.Fetch(ctx, entities.Value{AWSSecret: "denied"})
	require.EqualError(t, err, "cannot be read: AWS error AccessDeniedException")
	require.Contains(t, <-asked, "/eu-west-1/secretsmanager/")
	raw, err := m.Fetch(ctx, entities.Value{AWSSecret: "arn:aws:secretsmanager:us-east-1:1:secret:db"})
	require.NoError(t, err)
	require.Equal(t, "hunter2", string(raw))
	require.Contains(t, <-asked, "/us-east-1/secretsmanager/")
	_, err = m.Fetch(ctx, entities.Value{AWSSecret: "db", Region: "eu-north-1"})
	require.NoError(t, err)
	require.Contains(t, <-asked, "/eu-north-1/secretsmanager/")
}
