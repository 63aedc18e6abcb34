# Sealift::torch_observe: sealift's bridge to PyTorch's hooks, compiled for the PyTorch that find_package(Torch) found before. Its sources come
# with sealift, for the hooks are in no stable ABI.
if(NOT TARGET torch)
  message(FATAL_ERROR "Sealift::torch_observe needs PyTorch; call find_package(Torch REQUIRED) before find_package(Sealift COMPONENTS torch_observe)")
endif()
if(NOT TARGET Sealift::torch_observe)
  find_path(SEALIFT_TORCH_BRIDGE_DIR sealift_torch_bridge.h NO_DEFAULT_PATH
    PATHS "${CMAKE_CURRENT_LIST_DIR}/../../../share/torch_bridge" "${CMAKE_CURRENT_LIST_DIR}/../../../share/sealift/torch_bridge"
          "${CMAKE_CURRENT_LIST_DIR}/../../../../share/sealift/torch_bridge")
  if(NOT SEALIFT_TORCH_BRIDGE_DIR)
    message(FATAL_ERROR "the sources of sealift's bridge to PyTorch were not found beside ${CMAKE_CURRENT_LIST_DIR}; install sealift anew")
  endif()
  add_library(sealift_torch_observe STATIC
    "${SEALIFT_TORCH_BRIDGE_DIR}/bridge.cpp" "${SEALIFT_TORCH_BRIDGE_DIR}/values.cpp" "${SEALIFT_TORCH_BRIDGE_DIR}/debug_info.cpp"
    "${SEALIFT_TORCH_BRIDGE_DIR}/export_hook.cpp")
  add_library(Sealift::torch_observe ALIAS sealift_torch_observe)
  # NDEBUG as PyTorch itself: without it the headers describe another RecordFunction than the library has.
  target_compile_definitions(sealift_torch_observe PRIVATE NDEBUG)
  target_include_directories(sealift_torch_observe PUBLIC "${SEALIFT_TORCH_BRIDGE_DIR}")
  target_link_libraries(sealift_torch_observe PUBLIC torch Sealift::sealift)
  set_target_properties(sealift_torch_observe PROPERTIES CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON POSITION_INDEPENDENT_CODE ON)
endif()
set(Sealift_torch_observe_FOUND TRUE)
