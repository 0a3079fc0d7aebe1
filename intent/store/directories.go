package store

import (
	"context"
	"encoding/json"
	"fmt"
)

// directories are where applications were published from. Nothing that has a digest names them.
const directories = "directories/"

// Directory is where an application was published from: a directory of the machine where that was.
type Directory struct {
	Dir string `json:"dir"`
}

// PutDirectory records where an application was published from.
func (s *Store) PutDirectory(ctx context.Context, application, dir string) error {
	data, err := json.Marshal(Directory{dir})
	if err != nil {
		return fmt.Errorf("write the directory of %s to the store: %w", application, err)
	}
	return s.blobs.write(ctx, directories+application, data)
}

// Directory returns where an application was published from.
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
