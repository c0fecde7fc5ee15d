# Finds SentencePiece (Debian: libsentencepiece-dev), which has no config file. Defines SentencePiece::SentencePiece,
# and SentencePiece::train if the library that trains models is installed.
find_path(SentencePiece_INCLUDE_DIR NAMES sentencepiece_processor.h)
find_library(SentencePiece_LIBRARY NAMES sentencepiece)
find_library(SentencePiece_TRAIN_LIBRARY NAMES sentencepiece_train)
mark_as_advanced(SentencePiece_INCLUDE_DIR SentencePiece_LIBRARY SentencePiece_TRAIN_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(SentencePiece REQUIRED_VARS SentencePiece_LIBRARY SentencePiece_INCLUDE_DIR)

if(SentencePiece_FOUND AND NOT TARGET SentencePiece::SentencePiece)
    add_library(SentencePiece::SentencePiece UNKNOWN IMPORTED)
    set_target_properties(SentencePiece::SentencePiece PROPERTIES
        IMPORTED_LOCATION "${SentencePiece_LIBRARY}"
        INTERFACE_INCLUDE_DIRECTORIES "${SentencePiece_INCLUDE_DIR}")
    if(SentencePiece_TRAIN_LIBRARY)
        add_library(SentencePiece::train UNKNOWN IMPORTED)
        set_target_properties(SentencePiece::train PROPERTIES
            IMPORTED_LOCATION "${SentencePiece_TRAIN_LIBRARY}"
            INTERFACE_LINK_LIBRARIES SentencePiece::SentencePiece)
    endif()
endif()
