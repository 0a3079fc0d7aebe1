package store

import (
	"context"
	"encoding/json"
	"fmt"
)

// directories holds the source directory of each application. No content refers to it by digest.
const directories = "directories/"

// Directory is the directory from which an application was published, and its machine.
type Directory struct {
	Dir string `json:"dir"`
}

// PutDirectory records the directory from which an application was published.
func (s *Store) PutDirectory(ctx context.Context, application, dir string) error {
	data, err := json.Marshal(Directory{dir})
	if err != nil {
		return fmt.Errorf("write the directory of %s to the store: %w", application, err)
	}
	return s.blobs.write(ctx, directories+application, data)
}

// Directory returns the directory from which an application was published.
func (s *Store) Directory(ctx context.Context, application string) (string, error) {
	data, err := s.blobs.read(ctx, directories+application)
	if err != nil {
		return "", err
	}
	var d Directory
	if err := json.Unmarshal(data, &d); err != nil {
		return "", &CorruptError{directories + application, err.Error()}
	}
	return d.Dir, nil
}
