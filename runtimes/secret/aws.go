package secret

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/logging"

	"github.com/converge-engine/converge/entities"
)

// SecretsManager reads secrets of AWS Secrets Manager. It finds credentials and a region in the same way as the AWS tools (including
// AWS_ENDPOINT_URL_SECRETS_MANAGER and similar variables). The zero value is ready.
type SecretsManager struct {
	mu     sync.Mutex
	client *secretsmanager.Client
}

// Fetch implements Store.
func (m *SecretsManager) Fetch(ctx context.Context, v entities.Value) ([]byte, error) {
	client, err := m.connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot be requested: %w", err)
	}
	region := v.Region
	if parsed, err := arn.Parse(v.AWSSecret); err == nil && region == "" {
		region = parsed.Region
	}
	out, err := client.GetSecretValue(ctx, &secretsmanager.GetSecretValueInput{SecretId: aws.String(v.AWSSecret), VersionStage: stageOf(v)}, func(o *secretsmanager.Options) {
		if region != "" {
			o.Region = region
		}
	})
	var coded smithy.APIError
	switch {
	case errors.As(err, new(*types.ResourceNotFoundException)):
		return nil, errors.New("does not exist")
	case errors.As(err, &coded):
		return nil, fmt.Errorf("cannot be read: AWS error %s", coded.ErrorCode())
	case err != nil:
		return nil, fmt.Errorf("cannot be read: %w", err)
	case out.SecretString != nil:
		return []byte(*out.SecretString), nil
	}
	return out.SecretBinary, nil
}

func stageOf(v entities.Value) *string {
	if v.VersionStage == "" {
		return nil
	}
	return aws.String(v.VersionStage)
}

// connect finds credentials at the first call. After an error each call tries again, so a corrected configuration needs no restart.
func (m *SecretsManager) connect(ctx context.Context) (*secretsmanager.Client, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.client == nil {
		settings, err := config.LoadDefaultConfig(ctx, config.WithLogger(logging.Nop{})) // errors are returned
		if err != nil {
			return nil, err
		}
		m.client = secretsmanager.NewFromConfig(settings)
	}
	return m.client, nil
}
